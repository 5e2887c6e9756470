"""A lane in memory that serves a real bus in turns, and requests for its tools."""

from contextlib import asynccontextmanager

import msgspec
import trio
from lanes import open_lane, post

from mcpbus import Context, Server

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "turns", "version": "1"},
}
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "turns", "version": "1"},
}


def call(tool, *lines, version="1.1", capabilities=None, **arguments):
    """A call of a tool, whose answer may come on a stream."""
    declared = {"io.modelcontextprotocol/clientCapabilities": capabilities or {}}
    params = {"name": tool, "arguments": arguments, "_meta": CLAIM | declared | {"progressToken": 1}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    fields = (
        b"content-type: application/json",
        b"accept: application/json, text/event-stream",
        b"mcp-protocol-version: 2026-07-28",
        b"mcp-method: tools/call",
        b"mcp-name: %b" % tool.encode(),
    )
    return post(body, *fields, *lines, path="/mcp", version=version)


def legacy(method, params, *lines):
    """A request, or a notification, of a client that has a session or wants one."""
    id_ = {} if method.startswith("notifications/") else {"id": 1}
    body = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params} | id_)
    fields = b"content-type: application/json", b"accept: application/json, text/event-stream"
    return post(body, *fields, *lines, path="/mcp")


def make_server():
    server = Server("turns", version="1")
    server.go_on = trio.Event()

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def speak(ctx: Context) -> str:
        """Says something, and something else when it is told."""
        await ctx.progress(1)
        await server.go_on.wait()
        await ctx.progress(2)
        return "spoken"

    @server.tool
    async def wait() -> str:
        await server.go_on.wait()
        return "waited"

    return server


@asynccontextmanager
async def open_house(*, limits=None, authenticate=None, event_store=None, http=None, **options):
    server = make_server()
    server.authenticate = authenticate
    async with (
        server.open(limits=limits, event_store=event_store) as bus,
        open_lane(app=bus.asgi(**(http or {})), **options) as house,
    ):
        house.bus, house.server = bus, server
        yield house


def assert_nothing_is_left(bus):
    statistics = bus.statistics()
    assert (statistics.actors, statistics.requests, statistics.pending) == (0, 0, {})
    assert bus.ledger.balance() == 0
