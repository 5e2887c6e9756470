"""Legacy sessions that declare what a test wants declared, over HTTP in memory."""

from contextlib import asynccontextmanager

from mcpbus.testing import open_bus, open_probe


@asynccontextmanager
async def opened(server):
    """An open bus, and HTTP clients of it."""
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        yield bus, probe


async def initialize(probe, revision, capabilities, *, initialized=True):
    """Open a legacy session with capabilities, and return the header fields of its requests."""
    info = {"name": "c", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": info}
    answer = await probe.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).ended()
    session = {"mcp-session-id": answer.headers["mcp-session-id"]}
    if initialized:
        await probe.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session).ended()
    return session


def post(probe, session, method, params, request_id=1):
    return probe.post({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, session)
