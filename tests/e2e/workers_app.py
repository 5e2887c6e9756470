"""A program that serves with several processes."""

import os
import sys

import trio

from mcpbus import Context, Server

server = Server("workers")


@server.tool
async def where() -> int:
    """Say which process this is."""
    return os.getpid()


@server.tool
async def short(ctx: Context) -> str:
    """End a little after the shutdown has begun."""
    await ctx.progress(1)
    while not ctx.bus.admission.closed:
        await trio.lowlevel.checkpoint()
    return "finished"


@server.tool
async def change(ctx: Context) -> str:
    """Tell all clients of a change."""
    ctx.bus.tools_changed()
    return "told"


@server.tool
async def say(ctx: Context, number: int) -> int:
    """Say a number to the client, on its GET stream."""
    ctx.session.notify("notifications/said", {"number": number})
    return os.getpid()


if __name__ == "__main__":
    server.run(bind=sys.argv[1], workers=2)
