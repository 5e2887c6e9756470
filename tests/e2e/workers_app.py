"""A program that serves with several processes: ``BIND``, and ``URL NAMESPACE`` of Redis if they are some of many; the variable METRICS says where their figures are."""

import os
import sys

import trio

from mcpbus import Context, Server
from mcpbus.cluster import RedisReplicas

server = Server("workers", secret_keys=[bytes(32)])


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
async def connect_until_refused(ctx: Context, port: int) -> str:
    """End once nobody listens any more."""
    await ctx.progress(1)
    while True:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            return "refused"
        await trio.aclose_forcefully(stream)


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
    bind, *redis = sys.argv[1:]
    # Nobody in a test waits for the end of such a lease.
    cluster = RedisReplicas(*redis, link="127.0.0.1:0", lease=600) if redis else None
    server.run(bind=bind, workers=2, cluster=cluster, metrics=os.environ.get("METRICS"))
