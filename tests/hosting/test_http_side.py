"""Tokens, header fields and web routes of hosted servers: as on their own transport, which is asked the same for comparison."""

import json
import time
from typing import Annotated

import httpx
import pytest
import trio
from hosted_clients import server_of
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, ListToolsResult, Tool
from pydantic import Field

import mcpbus
from mcpbus.asyncio import to_asyncio
from mcpbus.testing import open_probe
from tests.hosting.fixtures import LEGACY, MODERN

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

FIELDS = ("content-type", "www-authenticate")


@pytest.fixture
def tokens():
    return server_of("tokens")


def bearer(token):
    return {"authorization": f"Bearer {token}", "x-trace": "t1"}


async def own(server, verb, path, **request):
    """What the server's own application answers."""

    async def ask():
        transport = httpx.ASGITransport(server.streamable_http_app())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            return await client.request(verb, path, **request)

    return await to_asyncio(ask)


@pytest.mark.parametrize("token", [None, "unknown", "eve-1"])
async def test_a_refusal_is_the_servers_own_to_the_letter(tokens, token, loop):
    headers = {} if token is None else bearer(token)
    expected = await own(tokens, "POST", "/mcp", json={}, headers=headers)
    async with mcpbus.host(tokens, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        refused = await probe.send("POST", b"{}", {"content-type": "application/json", **headers}).ended()
        assert refused.status == expected.status_code
        assert [refused.headers[name] for name in FIELDS] == [expected.headers[name] for name in FIELDS]
        assert refused.body == expected.content


@pytest.mark.parametrize("shell", ["asgi", "http1", "http2"])
async def test_web_routes_and_metadata_are_served_beside_the_endpoint(tokens, shell, loop):
    async with (
        mcpbus.host(tokens, loop=loop).open() as bus,
        open_probe(bus.asgi(), shell=shell) as probe,
    ):
        greeted = await probe.send("GET", target="/hello?n=1").ended()
        assert json.loads(greeted.body) == {"n": "1", "body": ""}
        greeted = await probe.send("POST", b"text", target="/hello").ended()
        assert json.loads(greeted.body) == {"n": None, "body": "text"}
        place = "/.well-known/oauth-protected-resource/mcp"
        expected = await own(tokens, "GET", place)
        assert json.loads((await probe.send("GET", target=place).ended()).body) == expected.json()
        assert (await probe.send("GET", target="/nowhere").ended()).status == 404
        assert (await probe.send("GET", target="/health").ended()).status == 200


async def test_a_web_route_that_fails_is_answered_and_logged(tokens, loop, caplog):
    async with mcpbus.host(tokens, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        assert (await probe.send("GET", target="/broken").ended()).status == 500
        assert (await probe.send("GET", target="/hello").ended()).status == 200
        assert "a web route of tokens failed" in caplog.text


async def test_a_web_route_is_refused_to_pages_of_other_hosts(tokens, loop):
    async with mcpbus.host(tokens, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        for headers in ({"host": "attacker.example"}, {"origin": "https://attacker.example"}):
            assert (await probe.send("GET", target="/hello", headers=headers).ended()).status == 403


async def test_no_web_routes_where_they_are_not_wanted(tokens, loop):
    async with mcpbus.host(tokens, loop=loop, routes=False).open() as bus, open_probe(bus.asgi()) as probe:
        assert (await probe.send("GET", target="/hello").ended()).status == 404
        assert (await probe.request("tools/list").ended()).status == 401


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_tool_sees_client_header_and_path(tokens, revision, loop):
    async with mcpbus.host(tokens, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        headers = bearer("ada-1")
        caller = probe if revision == MODERN else await probe.initialize(headers=headers)
        given = {"headers": headers} if revision == MODERN else {}
        answer = await caller.request("tools/call", {"name": "who", "arguments": {}}, **given).reply()
        assert answer["result"]["structuredContent"] == {"result": "ada ada t1 POST /mcp"}


async def test_a_session_is_its_clients_own_also_with_a_renewed_token(tokens, loop):
    async with mcpbus.host(tokens, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(headers=bearer("ada-1"))
        for token, status in {"ada-2": 200, "bob-1": 404, "unknown": 401}.items():
            session._headers.update(bearer(token))
            called = await session.request("tools/call", {"name": "who", "arguments": {}}).ended()
            assert called.status == status


def listed_server():
    """A server whose SDK cannot look up a schema: it counts what it has listed."""

    async def list_tools(ctx, params) -> ListToolsResult:
        schemas = {"first": {}, "second": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        name, cursor = ("second", None) if params and params.cursor else ("first", "more")
        schema = {"type": "object", "properties": schemas[name]}
        return ListToolsResult(tools=[Tool(name=name, input_schema=schema)], next_cursor=cursor)

    async def call_tool(ctx, params) -> CallToolResult:
        return CallToolResult(content=[])

    return Server("listed", on_list_tools=list_tools, on_call_tool=call_tool)


def looking_up():
    """A server whose SDK looks up the schema of a tool."""
    mcp = MCPServer("looking up")

    @mcp.tool()
    async def second(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "") -> str:
        return region

    return mcp


@pytest.mark.parametrize("make", [listed_server, looking_up])
async def test_header_fields_that_repeat_arguments_are_compared(make, loop):
    async with mcpbus.host(make(), loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        for cursor in ({}, {"cursor": "more"}):
            await probe.request("tools/list", cursor).reply()
        called = {"name": "second", "arguments": {"region": "north"}}
        for field, status in {"north": 200, "south": 400, None: 400, "=?base64?bm9ydGg=?=": 200}.items():
            headers = {} if field is None else {"mcp-param-region": field}
            answer = await probe.request("tools/call", called, headers=headers).ended()
            assert answer.status == status
            if status == 400:
                assert answer.messages[0]["error"]["code"] == -32020
        absent = {"name": "second", "arguments": {}}
        answer = await probe.request("tools/call", absent, headers={"mcp-param-region": "north"}).ended()
        assert answer.status == 400


async def test_fields_are_not_compared_with_a_schema_that_cannot_be_looked_up(loop, caplog):
    server = looking_up()

    def fail(_name):
        raise ValueError("no schemas today")

    server._lowlevel_server.get_tool_input_schema = fail
    async with mcpbus.host(server, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        called = {"name": "second", "arguments": {"region": "north"}}
        assert (await probe.request("tools/call", called).ended()).status == 200
    assert "cannot be looked up, so Mcp-Param-* fields are not compared" in caplog.text


async def test_a_get_stream_ends_with_the_token_of_its_client(autojump_clock):
    class Verifier:
        async def verify_token(self, token):
            expires = int(time.time()) + 60
            return AccessToken(token=token, client_id="ada", scopes=["read"], expires_at=expires)

    mcp = MCPServer("expiring", token_verifier=Verifier(), auth=server_of("tokens").settings.auth)
    async with mcpbus.host(mcp, loop="trio").open() as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(headers=bearer("ada-1"))
        get = await session.get().begun()
        begun = trio.current_time()
        await get.ended(timeout=90)
        assert 50 < trio.current_time() - begun <= 61
