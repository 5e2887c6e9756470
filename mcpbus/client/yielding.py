"""Long work in slices: other tasks run at least every few milliseconds."""

import time
from typing import Final

import trio

SLICE_SECONDS: Final = 0.005
"""Seconds of work after which other tasks have a turn."""


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
