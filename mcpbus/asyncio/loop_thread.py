"""An asyncio loop in a thread while a trio run lasts, and which loop belongs to which run: each has one at most."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import trio

_LOOP: Final = trio.lowlevel.RunVar[asyncio.AbstractEventLoop | None]("mcpbus_asyncio_loop", None)
_runs: dict[asyncio.AbstractEventLoop, trio.lowlevel.TrioToken] = {}


@contextmanager
def paired(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Pair a loop with the run that this is called in, while the block lasts."""
    _LOOP.set(loop)
    try:
        with joined(loop):
            yield
    finally:
        _LOOP.set(None)


@contextmanager
def joined(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let code of a loop find the run that this is called in, while the block lasts."""
    before = _runs.get(loop)
    _runs[loop] = trio.lowlevel.current_trio_token()
    try:
        yield
    finally:
        if before is None:
            del _runs[loop]


def loop_of_this_run() -> asyncio.AbstractEventLoop | None:
    """Return the loop that belongs to the run that this is called in."""
    return _LOOP.get()


def run_of(loop: asyncio.AbstractEventLoop) -> trio.lowlevel.TrioToken | None:
    """Return the run that belongs to a loop."""
    return _runs.get(loop)


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
