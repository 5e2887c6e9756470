"""What the examples share: a server on a free port, and a clock for what they print."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from mcpbus import Bus, Limits, Server
from mcpbus.core.concurrency import background

Show = Callable[[str], object]
"""Takes a line that says what has just happened."""


@asynccontextmanager
async def serving(
    server: Server, *, limits: Limits | None = None, **options: Any
) -> AsyncIterator[tuple[Bus, str]]:
    """Serve a server on a free port of this machine, and yield its bus and its URL.

    Args:
        server: The server.
        limits: As for `Server.open`.
        **options: As for `Bus.serve`.
    """
    async with server.open(limits=limits, drain_timeout=0) as bus, background() as nursery:
        serve = partial(bus.serve, bind="127.0.0.1:0", **options)
        [url] = await nursery.start(lambda task_status: serve(task_status=task_status))
        yield bus, url
        nursery.cancel_scope.cancel()


def run(demonstrate: Callable[[Show], Awaitable[object]]) -> None:
    """Run an example as a program; it prints each line with the seconds since its start."""
    start = time.perf_counter()

    def show(line: str) -> None:
        print(f"{time.perf_counter() - start:6.3f} s  {line}", flush=True)

    trio.run(demonstrate, show)
