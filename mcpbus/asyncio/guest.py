"""Trio as a guest of an asyncio loop: in its thread, beside what it does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from mcpbus.asyncio.crossing import outlast
from mcpbus.asyncio.loop_thread import paired


@attrs.define
class _Guest:
    """A trio run in an asyncio loop.

    Attributes:
        users: How many need it.
        unused: Is set when nobody does any more.
        ended: Has what the run raised, once it has ended.
    """

    ended: "asyncio.Future[None]"
    users: int = 0
    unused: trio.Event = attrs.field(factory=trio.Event)


_guests: Final[dict[asyncio.AbstractEventLoop, _Guest]] = {}


@asynccontextmanager
async def trio_guest() -> AsyncIterator[None]:
    """Have trio run in this asyncio loop while the block lasts; all such blocks at a time share one run.

    A block that begins while the last run ends waits for that: a thread has one run at a time.
    """
    loop = asyncio.get_running_loop()
    while (guest := _guests.get(loop) or _start(loop)).unused.is_set():
        await asyncio.wait([guest.ended])
    guest.users += 1
    try:
        yield
    finally:
        guest.users -= 1
        if not guest.users:
            guest.unused.set()
            await outlast(guest.ended, lambda: None)
            guest.ended.result()


def _start(loop: asyncio.AbstractEventLoop) -> _Guest:
    guest = _Guest(loop.create_future())

    async def run() -> None:
        with paired(loop):
            await guest.unused.wait()

    def end(outcome: Any) -> None:
        del _guests[loop]
        error = getattr(outcome, "error", None)
        if error is None:
            guest.ended.set_result(None)
        else:
            guest.ended.set_exception(error)

    trio.lowlevel.start_guest_run(
        run,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        run_sync_soon_not_threadsafe=loop.call_soon,
        done_callback=end,
        host_uses_signal_set_wakeup_fd=True,
    )
    _guests[loop] = guest
    return guest
