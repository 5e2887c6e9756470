"""What the signals of a process do; one that it may end by is sent to a process of its own."""

import os
import signal
import subprocess
import sys

import pytest
import trio

from mcpbus import shutdown_on_signals

NUMBERS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
HANDLERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _as_in_a_terminal():
    """SIGHUP does what it does by itself, even if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@NUMBERS
async def test_the_first_signal_asks_for_a_shutdown(number):
    async with shutdown_on_signals() as shutdown:
        os.kill(os.getpid(), number)
        with trio.fail_after(60):
            await shutdown.wait()
        await trio.lowlevel.checkpoint()  # nothing was cancelled


async def test_after_the_block_signals_do_what_they_did_before():
    before = [signal.getsignal(number) for number in HANDLERS]
    async with shutdown_on_signals() as shutdown:
        assert not set(before) & {signal.getsignal(number) for number in HANDLERS}
        signal.raise_signal(signal.SIGTERM)
        await shutdown.wait()
    assert [signal.getsignal(number) for number in HANDLERS] == before


async def test_a_hangup_that_is_ignored_stays_so():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    async with shutdown_on_signals() as shutdown:
        signal.raise_signal(signal.SIGHUP)
        await trio.testing.wait_all_tasks_blocked()
        assert not shutdown.is_set()


async def test_without_a_signal_nothing_happens():
    async with shutdown_on_signals() as shutdown:
        pass
    assert not shutdown.is_set()


def status_of(program, *arguments):
    """Run a program that has imported all that is needed, and return its exit status."""
    begin = "import os, signal, sys, trio\nfrom mcpbus.serving import signals\n"
    command = [sys.executable, "-c", begin + program, *map(str, arguments)]
    return subprocess.run(command, timeout=60, check=False).returncode


TWICE = """
async def main():
    async with signals.shutdown_on_signals() as shutdown:
        for number in sys.argv[1:]:
            signal.raise_signal(int(number))
            await shutdown.wait()
        await trio.sleep_forever()
trio.run(main)
"""
TOGETHER = """
async def main():
    async with signals.shutdown_on_signals():
        for number in sys.argv[1:]:
            signal.raise_signal(int(number))
trio.run(main)
"""


@pytest.mark.parametrize("program", [TWICE, TOGETHER], ids=["after the loop knew", "before it could"])
@NUMBERS
def test_the_second_signal_ends_the_process_by_itself(program, number):
    assert status_of(program, signal.SIGTERM.value, number.value) == -number


def test_the_first_process_of_a_container_ends_with_the_status_of_a_shell():
    """The kernel does nothing to it by itself, as if the signal were blocked for ever."""
    program = (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\nsignals.exit_by_signal(signal.SIGTERM)"
    )
    assert status_of(program) == 128 + signal.SIGTERM
