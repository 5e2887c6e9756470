"""Heads that an ASGI application has seen before: what is remembered of one holds for that one alone."""

import msgspec
import pytest
from asgi_calls import encoded, exchange

from mcpbus import Server
from mcpbus.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from mcpbus.protocol.revisions import LATEST

BODY = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": {"_meta": {PROTOCOL_VERSION: LATEST.name, CLIENT_CAPABILITIES: {}}},
    }
)
FIELDS = {
    "host": "localhost",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": LATEST.name,
    "mcp-method": "tools/list",
}


async def status_of(app, headers, *, body=BODY, **scope):
    """Send a request, and return the status of its answer."""
    return (await exchange(app, headers, body, **scope))[0]["status"]


@pytest.fixture
async def app(autojump_clock):
    server = Server("server", version="1")

    @server.tool
    async def nothing() -> None:
        pass

    async with server.open() as bus:
        yield bus.asgi(max_body_bytes=1000)


@pytest.mark.parametrize(
    ("scope", "changed", "status"),
    [
        ({"method": "PUT"}, {}, 405),
        ({"path": "/other"}, {}, 404),
        ({"path": "/mcp/"}, {}, 200),
        ({"root_path": "/mcp", "path": "/mcp"}, {}, 404),
        ({}, {"host": "elsewhere.example"}, 403),
        ({}, {"origin": "https://elsewhere.example"}, 403),
        ({}, {"content-type": "text/plain"}, 415),
        ({}, {"accept": "image/png"}, 406),
        ({}, {"mcp-method": "tools/call"}, 400),
        ({}, {"content-length": "2000"}, 413),
        ({"body": b" " * 2000}, {}, 413),
        ({"body": b"["}, {}, 400),
    ],
)
async def test_a_request_that_differs_from_an_accepted_one_is_judged_for_what_it_is(
    scope, changed, status, app
):
    accepted, other = encoded(FIELDS), encoded({**FIELDS, **changed})
    for _ in range(2):
        assert await status_of(app, accepted) == 200
        assert await status_of(app, other, **scope) == status


@pytest.mark.parametrize("kind", [list, tuple])
async def test_fields_may_be_lists_as_asgi_admits(kind, app):
    headers = [kind(field) for field in encoded(FIELDS)]
    assert [await status_of(app, headers) for _ in range(2)] == [200, 200]


async def test_what_comes_again_and_is_not_long_is_remembered(app):
    for number in range(300):
        assert await status_of(app, encoded({**FIELDS, "user-agent": str(number)})) == 200
    for _ in range(2):
        await status_of(app, encoded(FIELDS))
        await status_of(app, encoded({**FIELDS, "user-agent": "x" * 2000}))
        await status_of(app, encoded(FIELDS), query_string=b"x" * 2000)
        await status_of(app, encoded(FIELDS), path="/" + "x" * 2000)
    assert [fields for *_, fields in app._remembered] == [tuple(encoded(FIELDS))]


async def test_a_server_that_authenticates_asks_for_each_request(autojump_clock):
    asked = []

    async def authenticate(head):
        asked.append(head)

    async with Server("server", version="1", authenticate=authenticate).open() as bus:
        app = bus.asgi()
        for _ in range(3):
            assert await status_of(app, encoded(FIELDS)) == 200
    assert len(asked) == 3
