"""Tokens, header fields and web routes of hosted servers: as on their own transport, which is asked the same for comparison."""

import json

import httpx
import pytest
from hosted_clients import LEGACY, MODERN, server_of

import mcpbus
from mcpbus.asyncio import to_asyncio
from mcpbus.testing import open_probe

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
