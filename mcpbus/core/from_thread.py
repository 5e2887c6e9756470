"""How what runs in a worker thread has something done in the thread that trio runs in."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

T = TypeVar("T")


def wait_in_trio(function: Callable[[], Awaitable[T]]) -> T:
    """Run an async function in the trio thread, and wait for it in this worker thread.

    Raises:
        RuntimeError: This is the trio thread, which must not wait.
    """
    if trio.lowlevel.in_trio_run():
        raise RuntimeError(
            "a plain function that asks the client needs a worker thread: leave out thread=False"
        )
    return trio.from_thread.run(function)


def run_in_trio(function: Callable[[], T]) -> T:
    """Run a plain function in the trio thread, from a worker thread or from that thread itself."""
    if trio.lowlevel.in_trio_run():
        return function()
    return trio.from_thread.run_sync(function)
