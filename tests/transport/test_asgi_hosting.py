"""How the task of an ASGI request runs a handler: as cheaply as the handler allows."""

import contextvars

import msgspec
import pytest
import trio
from asgi_calls import encoded, exchange

from mcpbus import Server
from mcpbus.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcpbus.protocol.revisions import LATEST
from tests.at_home import CALLER

META = {
    PROTOCOL_VERSION: LATEST.name,
    CLIENT_CAPABILITIES: {},
    CLIENT_INFO: {"name": "client", "version": "1"},
}


async def call(app, tool):
    """Call a tool through an ASGI application, and return the messages of the response."""
    return await ask(app, "tools/call", {"name": tool, "arguments": {}}, tool)


async def ask(app, method, params, name, fields_as=list):
    """Send a request to an ASGI application, and return the messages of the response."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    fields = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": LATEST.name,
        "mcp-method": method,
        "mcp-name": name,
    }
    return await exchange(app, fields_as(encoded(fields)), msgspec.json.encode(message))


@CALLER
@pytest.mark.eagerness
@pytest.mark.parametrize("tool", ["never", "perhaps", "always"])
async def test_only_a_handler_that_may_wait_has_a_task_of_its_own(tool, autojump_clock):
    server = Server("server", version="1")
    tasks = []

    def look():
        tasks.append(trio.lowlevel.current_task())
        return "done"

    @server.tool
    async def never() -> str:
        return look()

    @server.tool
    async def perhaps() -> str:
        if not tasks:
            await trio.sleep(1)
        return look()

    @server.tool
    async def always() -> str:
        await trio.sleep(1)
        return look()

    async with server.open() as bus:
        app = bus.asgi()

        async def serve(*args):
            tasks.append(trio.lowlevel.current_task())
            await app(*args)

        start, body = await call(serve, tool)
        assert start["status"] == 200
        assert msgspec.json.decode(body["body"])["result"]["content"][0]["text"] == "done"
        mine, its = tasks
        assert (its is mine) == (tool == "never")
        statistics = bus.statistics()
        assert (statistics.delivered, statistics.actors, dict(statistics.pending)) == (1, 0, {})


@CALLER
@pytest.mark.parametrize("tool", ["never", "perhaps"])
async def test_what_a_handler_sets_in_its_context_is_its_own(tool):
    server = Server("server", version="1")
    variable = contextvars.ContextVar("variable", default="unset")

    @server.tool
    async def never() -> str:
        seen = variable.get()
        variable.set("by the handler")
        return seen

    @server.tool
    async def perhaps() -> str:
        if variable.get() == "unset":
            await trio.lowlevel.checkpoint()
        seen = variable.get()
        variable.set("by the handler")
        return seen

    async with server.open() as bus:
        variable.set("by the server")
        _, body = await call(bus.asgi(), tool)
        assert msgspec.json.decode(body["body"])["result"]["content"][0]["text"] == "by the server"
        assert variable.get() == "by the server"


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("prompts/get", {"name": "hasty"}, "hasty"),
        ("resources/read", {"uri": "text://slow", "name": "hasty"}, "text://slow"),
    ],
)
async def test_what_waits_may_have_the_name_of_a_tool_that_cannot(method, params, name, autojump_clock):
    server = Server("server", version="1")

    @server.tool
    async def hasty() -> str:
        return "done"

    @server.prompt(name="hasty")
    async def prompt() -> str:
        await trio.sleep(1)
        return "slowly"

    @server.resource("text://slow")
    async def resource() -> str:
        await trio.sleep(1)
        return "slowly"

    async with server.open() as bus:
        start, body = await ask(bus.asgi(), method, params, name)
        assert start["status"] == 200
        assert b"slowly" in body["body"]
        assert bus.statistics().requests == 0


@pytest.mark.parametrize("fields_as", [tuple, iter, lambda fields: [list(field) for field in fields]])
async def test_header_fields_may_come_as_anything_that_can_be_iterated(fields_as):
    server = Server("server", version="1")

    @server.tool
    async def tool() -> str:
        return "done"

    async with server.open() as bus:
        app = bus.asgi()
        for _ in range(2):
            start, _ = await ask(app, "tools/call", {"name": "tool", "arguments": {}}, "tool", fields_as)
            assert start["status"] == 200
