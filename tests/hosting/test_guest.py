"""A hosted server in an asyncio program: its code runs in the program's own loop."""

import asyncio
import json

import httpx
import pytest
import trio
from hosted_clients import server_of
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.routing import Mount

import mcpbus
import mcpbus.asyncio
from tests.hosting.fixtures import MODERN

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

CLAIM = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(tool, **arguments):
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }
    params = {"name": tool, "arguments": arguments, "_meta": CLAIM}
    return {
        "json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        "headers": headers,
    }


def asked(app, path, **request):
    """What an application answers to one request in a loop of asyncio."""

    async def main():
        async with app.router.lifespan_context(app) if isinstance(app, Starlette) else app.lifespan():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                return await client.post(path, **request)

    return asyncio.run(main())


def test_its_tools_run_in_the_loop_of_the_program():
    mcp, loops = MCPServer("guest"), []

    @mcp.tool()
    async def where() -> str:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return "here"

    app = mcpbus.asyncio.asgi(mcpbus.host(mcp), response="json")

    async def main():
        async with app.lifespan():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                answer = await client.post("/mcp", **call("where"))
        assert answer.json()["result"]["structuredContent"] == {"result": "here"}
        assert loops == [asyncio.get_running_loop()]

    asyncio.run(main())


def test_it_is_mounted_in_another_application():
    app = mcpbus.asyncio.asgi(mcpbus.host(server_of("notes")), response="json")
    web = Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan)
    answer = asked(web, "/tools/mcp", **call("echo", text="a"))
    assert answer.json()["result"]["structuredContent"] == {"result": "a"}


def test_its_web_routes_are_served_there_too():
    app = mcpbus.asyncio.asgi(mcpbus.host(server_of("tokens")))
    assert asked(app, "/hello?n=2").json() == {"n": "2", "body": ""}
    refused = asked(app, "/mcp", **call("who"))
    assert refused.status_code == 401
    assert "resource_metadata" in refused.headers["www-authenticate"]


@pytest.mark.parametrize("hosted", [True, False])
def test_what_a_tool_sends_after_it_has_waited_comes_before_its_result(hosted):
    server = server_of("notes") if hosted else mcpbus.Server("s")

    async def work(steps: int, ctx: mcpbus.Context) -> str:
        await trio.sleep(0.01)
        for step in range(steps):
            await ctx.progress(step + 1)
        await ctx.info("worked")
        return "done"

    if not hosted:
        server.add_tool(work)
    request = call("work", steps=2)
    request["json"]["params"]["_meta"] = CLAIM | {
        "progressToken": "p",
        "io.modelcontextprotocol/logLevel": "info",
    }
    answer = asked(mcpbus.asyncio.asgi(mcpbus.host(server) if hosted else server), "/mcp", **request)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert [line.get("method", line.get("id")) for line in lines] == [
        "notifications/progress",
        "notifications/progress",
        "notifications/message",
        1,
    ]
