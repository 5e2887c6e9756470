"""Servers of FastMCP 4, hosted: what its authors write has the effect that it has on its own transport, and elicitation works in both eras."""

import base64
import hashlib
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

import mcpbus
from mcpbus.asyncio import to_asyncio
from mcpbus.testing import open_probe
from tests.hosting.fixtures import LEGACY, MODERN

sys.path.insert(0, str(Path(__file__).parent))

import fast
from fastmcp import Client, Context, FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.server.auth.settings import ClientRegistrationOptions

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


async def answer(method, _params):
    assert method == "elicitation/create"
    return {"action": "accept", "content": {"value": "Ada"}}


@asynccontextmanager
async def hosted(revision, loop, server=fast.mcp):
    async with (
        mcpbus.host(server, loop=loop).open() as bus,
        bus.connect(revision=revision, capabilities={"elicitation": {}}, on_input_request=answer) as client,
    ):
        yield client


async def text(client, tool, said=None, **arguments):
    result = await client.call_tool(
        tool,
        arguments,
        on_notification=None if said is None else lambda *each: said.append(each),
        log_level="debug",
    )
    return result["content"][0]["text"]


async def test_tools_of_the_server_and_of_a_mounted_one(revision, loop):
    async with hosted(revision, loop) as client:
        assert {"add", "sub_deep"} <= {tool["name"] for tool in await client.list_tools()}
        assert await text(client, "add", a=1, b=2) == "3"
        assert await text(client, "sub_deep") == "from below"


async def test_an_elicitation_is_answered_in_both_eras(revision, loop):
    async with hosted(revision, loop) as client:
        assert await text(client, "ask") == "AcceptedElicitation[Any] Ada"


async def test_elicitation_on_fastmcps_own_transport_is_as_it_was():
    async def call():
        async with Client(fast.mcp, elicitation_handler=lambda *_: "Ada") as client:
            return (await client.call_tool("ask", raise_on_error=False)).is_error

    async with mcpbus.host(fast.mcp).open():
        own = await to_asyncio(call)
    assert own is True, "FastMCP refuses it in 2026-07-28"


async def test_progress_log_lines_lifespan_and_transport(revision, loop):
    said = []
    async with hosted(revision, loop) as client:
        assert await text(client, "work", said) == "stdio open"
    assert [method for method, _ in said] == ["notifications/progress", "notifications/message"]


async def test_middleware_runs_around_calls_and_initialize(revision, loop):
    fast.seen.clear()
    async with hosted(revision, loop) as client:
        await text(client, "add", a=1, b=2)
    assert fast.seen == (["initialize"] if revision == LEGACY else []) + ["call add"]


async def test_the_state_of_a_session_lasts_as_long_as_that(loop):
    async with mcpbus.host(fast.mcp, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        for _ in range(2):
            session = await probe.initialize()
            call = {"name": "count", "arguments": {}}
            counts = [await session.request("tools/call", call).reply() for _ in range(2)]
            assert [each["result"]["structuredContent"] for each in counts] == [{"result": 1}, {"result": 2}]


async def test_a_tool_that_is_added_while_it_serves_is_listed(loop):
    server = fast.make()
    async with hosted(MODERN, loop, server) as client:
        before = {tool["name"] for tool in await client.list_tools()}
        await text(client, "grow")
        after = {tool["name"] for tool in await client.list_tools()}
        assert after - before == {"add_more"}
        assert await text(client, "add_more", a=1) == "2"


async def test_requests_tokens_and_routes(revision, loop):
    async with mcpbus.host(fast.guarded, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        headers = {"authorization": "Bearer ada-1", "x-trace": "t1"}
        caller = probe if revision == MODERN else await probe.initialize(headers=headers)
        given = {"headers": headers} if revision == MODERN else {}
        reply = await caller.request("tools/call", {"name": "who", "arguments": {}}, **given).reply()
        assert reply["result"]["content"][0]["text"] == "ada t1 /mcp"
        assert (await probe.send("GET", target="/hello").ended()).body == b"hello"


@pytest.mark.parametrize("token", [None, "unknown"])
async def test_a_refusal_is_the_servers_own_to_the_letter(token, loop):
    headers = {} if token is None else {"authorization": f"Bearer {token}"}

    async def own():
        transport = httpx.ASGITransport(fast.guarded.http_app(path="/mcp"))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            return await client.post("/mcp", json={}, headers=headers)

    async with mcpbus.host(fast.guarded, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        expected = await to_asyncio(own)
        refused = await probe.send("POST", b"{}", {"content-type": "application/json", **headers}).ended()
        assert refused.status == expected.status_code == 401
        assert refused.headers["www-authenticate"] == expected.headers["www-authenticate"]
        assert refused.body == expected.content


async def test_a_release_without_the_private_names_loses_elicitation_alone(monkeypatch, caplog):
    from fastmcp.server.context import Context

    from mcpbus.hosting import fastmcp4

    monkeypatch.setattr(Context, fastmcp4._WRAPPED, False, raising=False)
    monkeypatch.delattr(Context, "_is_modern_protocol")
    fastmcp4.prepare()
    assert "ctx.elicit reaches no client of 2026-07-28" in caplog.text
    monkeypatch.undo()
    async with hosted(MODERN, "asyncio", FastMCP("plain")) as client:
        assert await client.list_tools() == []


async def test_its_own_oauth_server_registers_authorizes_and_issues_a_token(loop):
    verifier = "v" * 64
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    server = FastMCP(
        "oauth",
        auth=InMemoryOAuthProvider(
            base_url="http://127.0.0.1:8000",
            client_registration_options=ClientRegistrationOptions(enabled=True),
        ),
    )
    server.tool(fast.add_more)
    redirect = "http://127.0.0.1:9/callback"
    json_body, form = (
        {"content-type": kind} for kind in ("application/json", "application/x-www-form-urlencoded")
    )
    async with mcpbus.host(server, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        body = json.dumps({"redirect_uris": [redirect], "token_endpoint_auth_method": "none"}).encode()
        client = json.loads((await probe.send("POST", body, json_body, target="/register").ended()).body)
        query = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": redirect,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "state": "s",
        }
        answered = await probe.send("GET", target=f"/authorize?{urlencode(query)}").ended()
        code = parse_qs(urlsplit(answered.headers["location"]).query)["code"][0]
        wanted = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": client["client_id"],
            "code_verifier": verifier,
        }
        issued = await probe.send("POST", urlencode(wanted).encode(), form, target="/token").ended()
        token = json.loads(issued.body)["access_token"]
        headers = {"authorization": f"Bearer {token}"}
        call = {"name": "add_more", "arguments": {"a": 1}}
        assert (await probe.request("tools/call", call).ended()).status == 401
        reply = await probe.request("tools/call", call, headers=headers).reply()
        assert reply["result"]["structuredContent"] == {"result": 2}


async def test_a_tool_that_is_hidden_for_one_session_is_listed_for_others(loop):
    server = FastMCP("hiding")
    server.tool(fast.add_more)

    @server.tool
    async def hide(ctx: Context) -> str:
        await ctx.disable_components(names={"add_more"})
        return "hidden"

    async with mcpbus.host(server, loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        one, other = [await probe.initialize() for _ in range(2)]
        await one.request("tools/call", {"name": "hide", "arguments": {}}).reply()
        for session, names in ((one, ["hide"]), (other, ["add_more", "hide"])):
            tools = (await session.request("tools/list").reply())["result"]["tools"]
            assert sorted(tool["name"] for tool in tools) == names
