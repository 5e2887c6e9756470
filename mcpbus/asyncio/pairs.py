"""Which asyncio loop and which trio run belong together: a run has one loop of its own at most, and a loop one run."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
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
