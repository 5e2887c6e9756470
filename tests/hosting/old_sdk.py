"""Runs the tests of hosted servers of version 1 of the official SDK: ``python -m tests.hosting.old_sdk``.

They run in an environment of their own in `.venv/old-sdk`, since both versions of the SDK have one name.
"""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv" / "old-sdk"
SDK = ["mcp==1.30.0", "fastmcp>=3,<4", "fastapi_mcp==0.4.0"]
# What the tests themselves need, without the version of the SDK that the extra `test` takes.
NEEDS = [
    "coredis>=6.9,<7",
    "h11",
    "httpx",
    "hypothesis",
    "hypothesis-trio",
    "joserfc",
    "lupa",
    "pytest<9.2",
    "pytest-trio",
]


def main():
    """Make the environment, and run the tests in it."""
    python = FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for command in (
        [*pip, "--editable", ROOT, *SDK, *NEEDS],
        # These libraries warn of much that is their own affair.
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "tests/old_sdk_servers"],
    ):
        done = subprocess.run([str(word) for word in command], cwd=ROOT, check=False)
        if done.returncode:
            sys.exit(done.returncode)


if __name__ == "__main__":
    main()
