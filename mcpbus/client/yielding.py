"""Long work in slices: other tasks run at least every few milliseconds, however many tasks have long work."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

SLICE_SECONDS: Final = 0.005
"""Seconds of work after which other tasks have a turn."""


LONG_WORK_BYTES: Final = 4096
"""Bytes of a server from which on it is long work to read them."""

_line: Final = trio.lowlevel.RunVar[trio.Lock]("the line of long work")


@asynccontextmanager
async def long_work(*, cancellable: bool = False) -> AsyncIterator[None]:
    """Wait until no other task has long work. A cancel point if it is `cancellable`, and else none.

    Slices alone are not enough: with a hundred servers that send without a pause, a hundred slices would pass before a short message has
    its turn. Short work passes by the line.
    """
    try:
        line = _line.get()
    except LookupError:
        line = trio.Lock()
        _line.set(line)
    # Each task ahead has at most one piece to read, so this wait is short.
    with trio.CancelScope(shield=not cancellable):
        await line.acquire()
    try:
        yield
    finally:
        line.release()


class Yielder:
    """Lets other tasks run between the steps of long work, once a slice of time is used up.

    It measures processor time and not trio's clock, which stands still while a task works.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_SECONDS

    async def pause(self) -> None:
        """Let other tasks run, if the slice is used up. No cancel point."""
        if time.perf_counter() >= self._until:
            await trio.lowlevel.cancel_shielded_checkpoint()
            self._until = time.perf_counter() + SLICE_SECONDS
