"""Runs the tests of hosted servers that need packages of other versions: ``python -m tests.hosting.environments``.

Each environment is in a folder of its own in `.venv`, since all versions of the SDK have one name. The names of some choose those:
``python -m tests.hosting.environments fastmcp-2``.
"""

import subprocess
import sys
import time
import venv
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).parents[2]

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
    "pytest-xdist",
]

# The packages of each environment, and the tests that run there.
ENVIRONMENTS = {
    "old-sdk": (["mcp==1.30.0", "fastmcp>=3,<4", "fastapi_mcp==0.4.0"], ["tests/old_sdk_servers"]),
    "fastmcp-2": (
        [
            "mcp==1.30.0",
            "fastmcp>=2.14,<3",
            "fastapi_mcp==0.4.0",
            "mcp-server-calculator==0.2.1",
            "mcp-server-sqlite==2025.4.25",
            "random-number-mcp==0.1.3",
            "unit-converter-mcp==0.1.2",
        ],
        ["tests/old_sdk_servers", "tests/public_servers"],
    ),
    "fastmcp-tasks": (
        ["mcp==2.3.0", "fastmcp>=4.1,<5", "fastmcp-tasks==4.1.4"],  # which takes no newer FastMCP
        ["tests/fastmcp_tasks"],
    ),
    "public-servers": (
        [
            "mcp==2.3.0",
            "fastmcp>=4.2,<5",
            "excel-mcp-server==2.2.2",
            "fastmcp-sample-server==0.4.1",
            "mcp-server-fetch==2026.10.24",
            "mcp-server-git==2026.10.19",
            "mcp-server-time==2026.10.19",
            "office-word-mcp-server==1.1.11",
        ],
        ["tests/public_servers"],
    ),
}


AT_ONCE = 2
"""The environments that are made and tested at once: pip waits for the network, and many tests wait for programs."""


def run(*command):
    """Run a program to its end.

    Raises:
        subprocess.CalledProcessError: It failed; the exception has its output.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.stdout


def run_environment(name):
    """Make an environment, and run the tests in it. Returns whether they passed, and a report."""
    packages, tests = ENVIRONMENTS[name]
    python = ROOT / ".venv" / name / "bin" / "python"
    started = time.monotonic()
    try:
        if not python.exists():
            venv.create(python.parents[1], with_pip=True)
        pip = "-m", "pip", "--disable-pip-version-check", "install", "--quiet"
        run(python, *pip, "--editable", ROOT, *packages, *NEEDS)
        installed = time.monotonic()
        # These libraries warn of much that is their own affair.
        quiet = "-q", "-p", "no:cacheprovider", "-W", "ignore", "--numprocesses=2", "--dist=worksteal"
        report = run(python, "-m", "pytest", *quiet, *tests)
    except subprocess.CalledProcessError as failed:
        return False, f"{failed.stdout}{name}: failed with status {failed.returncode}\n"
    now = time.monotonic()
    return True, f"{report}{name}: {installed - started:.0f} s to install, {now - installed:.0f} s to test\n"


def main():
    """Make the environments, and run the tests in them."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        reports = [pool.submit(run_environment, name) for name in sys.argv[1:] or ENVIRONMENTS]
        for each in as_completed(reports):
            sys.stderr.write(each.result()[1])
    sys.exit(not all(each.result()[0] for each in reports))


if __name__ == "__main__":
    main()
