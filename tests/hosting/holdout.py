"""Runs the interaction suite of the official Python SDK with its servers hosted, on both loops: ``python -m tests.hosting.holdout``.

The suite is in the source distribution of `mcp`. It runs in an environment of its own in `.venv/holdout`, since one of its libraries
changes what every program imports. With `--newest` the suite of the newest release of version 2 and the tests here
follow, if that is not the pinned one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv" / "holdout"
PINNED = "2.3.0"
NEWEST = "mcp>=2.3,<3"
LOOPS = "asyncio", "trio"
NEEDS = [
    "blockbuster",
    "coverage",
    "dirty-equals",
    "inline-snapshot",
    "logfire",
    "pytest-examples",
    "pytest-timeout",
]
SETTINGS = """[pytest]
markers = requirement(id): what is tested
addopts = -p anyio -p no:cacheprovider -p no:trio
filterwarnings = ignore
"""


def run(*command, **options):
    """Run a program to its end, and exit with its status if that is not 0."""
    done = subprocess.run([str(word) for word in command], check=False, **options)
    if done.returncode:
        sys.exit(done.returncode)


def newest_release():
    """Return the version of the newest release of version 2 of the SDK."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--dry-run", "--ignore-installed", "--no-deps", "--report", "-", NEWEST]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["install"][0]["metadata"]["version"]


def prepare(version):
    """Make the environment with a version of the SDK, and return the Python there and the archive of the suite."""
    python = FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    archive = FOLDER / f"mcp-{version}.tar.gz"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--editable", f"{ROOT}[test]", f"mcp=={version}", *NEEDS)
    if not archive.exists():
        run(
            *pip,
            *("download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", FOLDER),
            f"mcp=={version}",
        )
    return python, archive


def unpack(archive, loop):
    """Unpack the suite into a folder of its own for a loop, and return that."""
    folder = FOLDER / loop
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    suite = folder / archive.name.removesuffix(".tar.gz")
    if (suite / "src").exists():  # the package that is installed is tested
        shutil.rmtree(suite / "src")
    (suite / "pytest.ini").write_text(SETTINGS)
    conftest = suite / "tests" / "conftest.py"
    conftest.write_text(conftest.read_text().replace('return "asyncio"', f'return "{loop}"'))
    return suite


def run_suite(version):
    """Run the suite of a version on both loops at once. Exits with status 1 if either fails."""
    python, archive = prepare(version)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "interop")}
    command = [python, "-m", "pytest", "-p", "mcpbus_holdout", "tests/interaction", "-q", "--timeout=60"]

    def on(loop):
        suite = unpack(archive, loop)
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, check=False, cwd=suite, env=environment, text=True, **output)

    with ThreadPoolExecutor(len(LOOPS)) as pool:
        runs = dict(zip(LOOPS, pool.map(on, LOOPS), strict=True))
    for loop, done in runs.items():
        sys.stderr.write(f"The suite of mcp {version}, with its servers hosted on {loop}:\n{done.stdout}")
    if any(done.returncode for done in runs.values()):
        sys.exit(1)


def run_own_tests():
    """Run the tests of hosted servers in the environment that is prepared: the others have the pinned release."""
    quiet = "-q", "-p", "no:cacheprovider", "-W", "ignore", "--numprocesses=auto", "--maxprocesses=4"
    run(FOLDER / "bin" / "python", "-m", "pytest", *quiet, "tests/hosting", cwd=ROOT)


def main():
    """Run the suite of the pinned release; and that of the newest one with the tests of this folder, if it is wanted and another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--newest", action="store_true", help="then take the newest release, unless it is the pinned one"
    )
    given = parser.parse_args()
    run_suite(PINNED)
    if given.newest:
        newest = newest_release()
        sys.stderr.write(f"The newest release of mcp 2 is {newest}, the pinned one {PINNED}.\n")
        if newest != PINNED:
            run_suite(newest)
            run_own_tests()


if __name__ == "__main__":
    main()
