"""One of several processes that chaos comes over: ``redis URL LINK ADVERTISE``, or ``workers NUMBER``."""

import os
import sys
from contextlib import suppress

import trio
from chaos_books import Recorder

from mcpbus import Context, ServeOptions, Server
from mcpbus.cluster import RedisReplicas
from mcpbus.cluster.session_sender import OrderedSessionSender
from mcpbus.core import bus_services
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.receipt import Ledger

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


class Books(Ledger):
    """The books of this process, which are also where they are not lost with it."""

    def __init__(self):
        super().__init__()
        recorder = Recorder(self)
        trio.lowlevel.add_instrument(recorder)
        send = OrderedSessionSender._send

        def tell(courier, *message):
            recorder.told += 1
            send(courier, *message)

        OrderedSessionSender._send = tell


bus_services.Ledger = Books
server = Server("chaos", secret_keys=[bytes(32)])


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
async def reach(ctx: Context, session: str, text: str) -> str:
    """Say it on the GET stream of another client, wherever that has its session, if that can be known now."""
    with suppress(ServerOverloaded):
        found = await ctx.bus.find_session(session, None)
        if found is not None:
            found.notify("notifications/said", {"text": text})
    return text


if __name__ == "__main__":
    how, what, *places = sys.argv[1:]
    if how == "workers":
        server.run(bind="127.0.0.1:0", workers=int(what))
    else:
        link, advertise = places
        cluster = RedisReplicas(what, link=link, advertise=advertise, lease=1.0)
        server.run(bind="127.0.0.1:0", cluster=cluster, options=ServeOptions(drain_timeout=2.0))
