"""Each example is a program that can be run as its text says, and ends by itself."""

import subprocess
import sys

import pytest
import trio

from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

NAMES = ("transports", "replicas", "json_answers", "register", "live")


@pytest.fixture(scope="module")
def printed():
    """Run all of them at once: one of them takes its time on purpose."""
    printed = {}

    async def run(name):
        command = [sys.executable, "-m", f"examples.failures.{name}"]
        done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
        printed[name] = (done.returncode, done.stdout.decode())

    async def run_all():
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for name in NAMES:
                    nursery.start_soon(run, name)

    trio.run(run_all)
    return printed


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_shows_what_happens(printed, name):
    returncode, output = printed[name]
    assert returncode == 0, output
    assert all(" s  " in line for line in output.splitlines()), output
    assert len(output.splitlines()) > 3
