"""A server whose answers are long, in a process of its own: how much memory it takes is for the test to look at.

To standard output it says how many seconds of the processor it has taken at most before all else had a turn.
"""

import sys
import time
from contextlib import asynccontextmanager
from typing import Any

import trio

from mcpbus import Context, Server

MEGABYTE = "x" * 1024 * 1024
one_by_one = trio.Lock()
go_on = trio.Event()
waiting = trio.Semaphore(0)


async def watch() -> None:
    """Take a turn again and again, and tell how much of the processor was taken in between."""
    slowest = 0.0
    while True:
        begun = time.process_time()
        await trio.sleep(0.001)
        if (took := time.process_time() - begun) > slowest:
            slowest = took
            print(slowest, flush=True)  # noqa: T201


@asynccontextmanager
async def lifespan(_server: Server):
    """Watch how long others wait for their turns."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield
        nursery.cancel_scope.cancel()


server = Server("memory", version="1.0.0", lifespan=lifespan)


@server.tool
async def long() -> str:
    """Answer at once, at length."""
    return MEGABYTE


@server.tool
async def late() -> str:
    """Answer at length, a little later, and each call after the other: how many would be due at once is for the machine to say."""
    await trio.sleep(0.5)
    async with one_by_one:
        await trio.lowlevel.checkpoint()
    return MEGABYTE


@server.tool
async def together() -> str:
    """Answer at length when all others do, in the very same turn of the scheduler; see `release`."""
    waiting.release()
    await go_on.wait()
    return MEGABYTE


@server.tool
async def release(calls: int) -> str:
    """Have `together` answer as soon as so many calls of it wait."""
    for _ in range(calls):
        await waiting.acquire()
    go_on.set()
    return "released"


@server.tool
async def wait(data: Any) -> str:
    """Keep what came, and never answer."""
    await trio.sleep_forever()
    return str(data)


@server.tool
async def ask(question: str, ctx: Context) -> str:
    """Ask what one is told to."""
    return str(await ctx.elicit(question, str))


@server.resource("res://{+path}")
async def resource(path: str) -> str:
    """Have something to subscribe to."""
    return path


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("http", bind=sys.argv[1])
