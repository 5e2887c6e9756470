"""A program whose lifespan has a child process, and whose handlers, or its lifespan, do not end when they are told to.

python -m lifespan_app stdio|http DRAIN_SECONDS WRITE_DEADLINE [how its lifespan ends]
"""

import sys
import threading
import time
from contextlib import asynccontextmanager

import trio
from program_app import tell

from mcpbus import Context, Limits, ServeOptions, Server

TRANSPORT, DRAIN, DEADLINE, *HOW = sys.argv[1:]


async def hold_on(how: str) -> None:
    tell("HOLDS")
    if how == "blocks":
        time.sleep(3600)  # noqa: ASYNC251 - as a handler does that should not
    elif how == "shields itself":
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()
    elif how == "leaves a thread":
        threading.Thread(target=stay).start()
    else:
        while True:
            try:
                await trio.sleep(0.01)
            except trio.Cancelled:
                if how != "goes on":
                    raise


def stay() -> None:
    time.sleep(3600)


@asynccontextmanager
async def lifespan(_server):
    async with trio.open_nursery() as nursery:
        child = await nursery.start(trio.run_process, [sys.executable, "-c", "import time; time.sleep(3600)"])
        tell(f"CHILD {child.pid}")
        try:
            yield
        finally:
            if HOW:
                await hold_on(HOW[0])
            nursery.cancel_scope.cancel()
    tell("LEFT")


server = Server("lives", version="1", lifespan=lifespan)


@server.tool
async def hold(how: str, ctx: Context) -> str:
    """Begin to hold on when the shutdown has begun."""
    await ctx.progress(1)
    while not ctx.bus.admission.closed:
        await trio.lowlevel.checkpoint()
    await hold_on(how)
    return "unreached"


@server.tool
async def block(ctx: Context) -> str:
    await hold_on("blocks")
    return "unreached"


@server.tool
async def large(size: int) -> str:
    return "x" * size


@server.tool
async def later(seconds: float) -> str:
    """Tell when this time has passed."""
    await trio.sleep(seconds)
    tell("LATER")
    return "later"


if __name__ == "__main__":
    limits = Limits(write_deadline=float(DEADLINE), outbox_bytes=64 * 1024 * 1024)
    if TRANSPORT == "stdio":
        server.run("stdio", limits=limits, drain_timeout=float(DRAIN))
    else:
        server.run("http", bind=TRANSPORT, limits=limits, options=ServeOptions(drain_timeout=float(DRAIN)))
