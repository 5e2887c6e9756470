"""What an endpoint says of a head, it says of all heads with the same fields among those that are judged: it looks at no others."""

from itertools import product

import pytest

from mcpbus import Server
from mcpbus.auth import ResourceServer, StaticTokenVerifier
from mcpbus.protocol.http.head_validation import JUDGED
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import RequestHead

ORDINARY = {
    b"host": b"localhost",
    b"content-type": b"application/json",
    b"accept": b"application/json, text/event-stream",
}
FIELDS = [
    {},
    {b"host": b"elsewhere.example"},
    {b"origin": b"http://localhost"},
    {b"origin": b"https://elsewhere.example"},
    {b"origin": b"http://localhost", b"access-control-request-method": b"POST"},
    {b"sec-fetch-site": b"cross-site"},
    {b"accept": b"image/png"},
    {b"content-type": b"text/plain"},
    {b"last-event-id": b"1"},
    {b"mcp-protocol-version": b"2026-07-28"},
]
PATHS = ["/mcp", "/sse", "/health", "/.well-known/oauth-protected-resource/mcp", "/other"]


@pytest.fixture(params=[False, True], ids=["open", "with tokens"])
async def endpoint(request, autojump_clock):
    auth = (
        ResourceServer("http://localhost/mcp", StaticTokenVerifier({"secret": "ada"}))
        if request.param
        else None
    )
    async with Server("server", version="1", auth=auth).open() as bus:
        yield bus.asgi().direct("/mcp")


@pytest.mark.parametrize("verb", ["POST", "GET", "HEAD", "DELETE", "OPTIONS", "PUT"])
async def test_no_other_field_is_looked_at_before_a_request_is_served(endpoint, verb):
    asked = set()
    for path, changed in product(PATHS, FIELDS):
        fields = ORDINARY | changed
        headers = Headers(fields.items())

        def recording(name, fields=fields):
            asked.add(name)
            return fields.get(name)

        headers.raw = recording
        head = RequestHead(verb, path, headers)
        endpoint.is_head_valid(head)
        endpoint.cors_headers(head)
    assert b"host" in asked
    assert asked <= JUDGED
