"""An asyncio loop in a thread, for as long as the trio run lasts."""

import asyncio
import logging
import threading
from contextlib import ExitStack

import trio

from mcpbus.asyncio.pairs import paired

_log = logging.getLogger("mcpbus")


def start_loop() -> asyncio.AbstractEventLoop:
    """Start a loop in a thread, paired with this trio run, at whose end its tasks are cancelled and it is closed."""
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop, stopped = runner.get_loop(), asyncio.Event()
    pair = ExitStack()
    pair.enter_context(paired(loop))

    def run() -> None:
        with runner:
            while not stopped.is_set():
                try:
                    runner.run(stopped.wait())
                except BaseException:  # noqa: BLE001 - a task that nobody awaits has exited, say: others wait
                    _log.exception("the asyncio loop was stopped, and goes on")

    async def end_with_run() -> None:
        try:
            await trio.sleep_forever()
        finally:
            loop.call_soon_threadsafe(stopped.set)
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(thread.join)
            pair.close()

    thread = threading.Thread(target=run, name="mcpbus asyncio", daemon=True)
    thread.start()
    trio.lowlevel.spawn_system_task(end_with_run)
    return loop
