import os
import signal

import pytest
import trio

from mcpbus.serving import shutdown_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_asks_for_a_shutdown(number):
    async with shutdown_on_signals() as shutdown:
        os.kill(os.getpid(), number)
        with trio.fail_after(5):
            await shutdown.wait()
        await trio.lowlevel.checkpoint()  # nothing was cancelled


async def test_the_second_signal_cancels():
    async with shutdown_on_signals() as shutdown:
        os.kill(os.getpid(), signal.SIGTERM)
        with trio.fail_after(5):
            await shutdown.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await trio.sleep_forever()
            pytest.fail("it slept on")


async def test_without_a_signal_nothing_happens():
    async with shutdown_on_signals() as shutdown:
        pass
    assert not shutdown.is_set()
