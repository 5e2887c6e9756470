"""One of several processes that chaos comes over: ``redis URL LINK ADVERTISE``, or ``workers NUMBER``."""

import os
import sys

from mcpbus import Context, ServeOptions, Server
from mcpbus.cluster import Redis

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}

server = Server("chaos", state_keys=[bytes(32)])


@server.tool
async def echo(text: str) -> str:
    """Say the same."""
    return text


@server.tool
async def where() -> int:
    """Say which process this is."""
    return os.getpid()


@server.tool
async def say(ctx: Context, text: str) -> str:
    """Say it on the client's GET stream."""
    ctx.session.notify("notifications/said", {"text": text})
    return text


@server.tool
async def ask(ctx: Context, text: str) -> str:
    """Say it once the client has answered a question."""
    await ctx.elicit(text, FORM)
    return text


@server.tool
async def books(ctx: Context) -> dict[str, int]:
    """Say what the books of this process have."""
    now = ctx.bus.statistics()
    return {
        "emitted": now.emitted,
        "adopted": now.adopted,
        "delivered": now.delivered,
        "missing": ctx.bus.ledger.balance(),
    }


if __name__ == "__main__":
    how, what, *places = sys.argv[1:]
    if how == "workers":
        server.run(bind="127.0.0.1:0", workers=int(what))
    else:
        link, advertise = places
        cluster = Redis(what, link=link, advertise=advertise, lease=1.0)
        server.run(bind="127.0.0.1:0", cluster=cluster, options=ServeOptions(drain_seconds=2.0))
