"""Runs the interaction suite of the official Python SDK with its servers hosted, on both loops: ``python -m tests.hosting.holdout``.

The suite is in the source distribution of `mcp`. It runs in an environment of its own in `.venv/holdout`, since one of its libraries
changes what every program imports. With `--newest` it is that of the newest release of version 2.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv" / "holdout"
PINNED = "==2.3.0"
NEWEST = ">=2.3,<3"
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


def prepare(release):
    """Make the environment and unpack the suite, and return the Python there and the folder of the suite."""
    python = FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--editable", f"{ROOT}[test]", f"mcp{release}", *NEEDS)
    run(*pip, "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", FOLDER, f"mcp{release}")
    archive = max(FOLDER.glob("mcp-*.tar.gz"), key=lambda file: file.stat().st_mtime)
    with tarfile.open(archive) as packed:
        packed.extractall(FOLDER, filter="data")
    suite = FOLDER / archive.name.removesuffix(".tar.gz")
    if (suite / "src").exists():  # the package that is installed is tested
        shutil.rmtree(suite / "src")
    (suite / "pytest.ini").write_text(SETTINGS)
    return python, suite


def main():
    """Run the suite, first on asyncio and then on trio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--newest", action="store_true", help="take the newest release, not the pinned one")
    given = parser.parse_args()
    python, suite = prepare(NEWEST if given.newest else PINNED)
    conftest = suite / "tests" / "conftest.py"
    written = conftest.read_text()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "interop")}
    for loop in ("asyncio", "trio"):
        sys.stderr.write(f"The suite of {suite.name}, with its servers hosted on {loop} ...\n")
        conftest.write_text(written.replace('return "asyncio"', f'return "{loop}"'))
        try:
            command = [
                python,
                "-m",
                "pytest",
                "-p",
                "mcpbus_holdout",
                "tests/interaction",
                "-q",
                "--timeout=60",
            ]
            run(*command, cwd=suite, env=environment)
        finally:
            conftest.write_text(written)


if __name__ == "__main__":
    main()
