"""What the log says of requests: of those that are refused, why; of all, if that is wanted, what was answered."""

import logging
import re

import msgspec
import pytest
import trio

from mcpbus import Context, Server, UnauthorizedError
from mcpbus.protocol.http.headers import NO_HEADERS
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.jsonrpc import decode
from mcpbus.testing import open_bus, open_probe
from mcpbus.transports import access_log
from mcpbus.transports.refusal_log import RefusalLog, sanitize_for_log
from mcpbus.watch import Watch

JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def make_server(**options):
    server = Server("s", **options)

    @server.tool
    async def echo(text: str = "hi") -> str:
        return text

    @server.tool
    async def wait() -> str:
        await trio.sleep(1)
        return "waited"

    @server.tool
    async def chat(ctx: Context) -> str:
        await ctx.progress(1)
        await trio.sleep(1)
        return "said"

    return server


async def authenticate(head):
    if head.headers.get("authorization") != "Bearer right":
        raise UnauthorizedError
    return "ada"


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "mcpbus")
    return lambda: [record.getMessage() for record in caplog.records]


REFUSED = {
    "a host": (
        {"headers": {"host": "evil.example"}},
        "refused with 403: POST /mcp from 127.0.0.1: Host 'evil",
    ),
    "an origin": (
        {"headers": {"origin": "https://evil.example"}},
        "refused with 403: POST /mcp from 127.0.0.1: Origin 'https://evil",
    ),
    "nobody": ({}, "refused with 401: POST /mcp from 127.0.0.1: who is asking is not known"),
    "a path": (
        {"target": "/other"},
        "refused with 404: POST /other from 127.0.0.1: Not found: the MCP endpoint is /mcp",
    ),
    "a session": (
        {"headers": {"authorization": "Bearer right", "mcp-session-id": "gone"}},
        "refused with 404: POST /mcp from 127.0.0.1: Session not found",
    ),
    "HTTP+SSE of nobody": (
        {"verb": "GET", "target": "/sse", "headers": {"accept": "text/event-stream"}},
        "refused with 401: GET /sse from 127.0.0.1: who is asking is not known",
    ),
    "a session of HTTP+SSE": (
        {"target": "/sse?session_id=gone", "headers": {"authorization": "Bearer right"}},
        "refused with 404: POST /sse from 127.0.0.1: Session not found",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_refused_is_told_with_its_reason(what, lines, autojump_clock):
    asked, told = REFUSED[what]
    async with (
        open_bus(make_server(authenticate=authenticate)) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        answer = await probe.send(
            asked.get("verb", "POST"),
            body,
            headers={**JSON, "mcp-protocol-version": "2025-11-25", **asked.get("headers", {})},
            target=asked.get("target"),
        ).ended()
    assert answer.status in {401, 403, 404}
    assert len(lines()) == 1
    assert lines()[0].startswith(told)


@pytest.mark.parametrize(
    ("text", "told"), [("/mcp", "/mcp"), ("/a\x1b[2J\n", r"'/a\x1b[2J\n'"), ("x" * 999, f"'{'x' * 200}'")]
)
def test_what_clients_say_is_one_line_that_steers_no_terminal(text, told):
    assert sanitize_for_log(text) == told


async def test_a_long_method_is_cut_in_the_log(lines):
    head = RequestHead("X" * 999, "/other", NO_HEADERS)  # as HTTP/2 may have it
    RefusalLog().note(HttpResponse(404, body=b"Not found"), head, None)
    assert lines() == [f"refused with 404: '{'X' * 200}' /other from somebody: Not found"]


async def test_a_client_that_is_refused_again_and_again_fills_no_log(lines, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi()) as probe:
        for _ in range(25):
            await probe.send("POST", b"{}", target="/other").ended()
        await trio.sleep(60)
        await probe.send("POST", b"{}", target="/other").ended()
    assert len(lines()) == 11
    assert lines()[-1].endswith("(and 15 times more since the last line about it)")


async def test_what_is_served_is_not_told_by_default(lines, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi()) as probe:
        for tool in ("echo", "wait", "chat"):
            await probe.request("tools/call", {"name": tool}).ended()
    assert lines() == []


async def test_the_access_log_has_a_line_for_each_answer(lines, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi(access_log=True)) as probe:
        for tool in ("echo", "wait", "chat", "missing"):
            await probe.request("tools/call", {"name": tool, "_meta": {"progressToken": 1}}).ended()
        session = await probe.initialize("2025-11-25")
        await session.request("tools/call", {"name": "echo"}).ended()
        await session.request("tools/call", {"name": "chat", "_meta": {"progressToken": 1}}).ended()
        await session.request("tools/call", {"name": "echo", "arguments": {"text": "x" * 100_000}}).ended()
        stream = session.get()
        await stream.begun()
        await session.delete().ended()
        sse = probe.send("GET", headers={"accept": "text/event-stream"}, target="/sse")
        await sse.wait_for(lambda: sse.endpoint is not None)
        await probe.send("POST", PING, headers=JSON, target=sse.endpoint).ended()
        await probe.send("GET", target="/healthz").ended()
    # With --watched there are numbers of requests.
    told = [re.sub(r" after \d+\.\d ms$| #\d+(?=:)", "", line) for line in lines()]
    assert [re.sub(r"\d+ bytes", "N bytes", line) for line in told if not line.startswith("refused")] == [
        "127.0.0.1 POST /mcp tools/call echo: 200, N bytes",
        "127.0.0.1 POST /mcp tools/call wait: 200, N bytes",
        "127.0.0.1 POST /mcp tools/call chat: 200, stream",
        "127.0.0.1 POST /mcp tools/call missing: 400, N bytes",
        "127.0.0.1 POST /mcp initialize: 200, N bytes",
        "127.0.0.1 POST /mcp notifications/initialized: 202, N bytes",
        "127.0.0.1 POST /mcp tools/call echo: 200, N bytes",
        "127.0.0.1 POST /mcp tools/call chat: 200, stream",
        "127.0.0.1 POST /mcp tools/call echo: 200, N bytes",
        "127.0.0.1 GET /mcp -: 200, stream",
        "127.0.0.1 DELETE /mcp -: 204, N bytes",
        "127.0.0.1 GET /sse -: 200, stream",
        "127.0.0.1 POST /sse ping: 202, N bytes",
        "127.0.0.1 GET /healthz -: 200, N bytes",
    ]


async def test_with_a_watch_the_access_log_has_its_numbers(lines, autojump_clock):
    opened = open_bus(make_server(), watch=Watch())
    async with opened as bus, open_probe(bus.asgi(access_log=True), shell="http1") as probe:
        await probe.request("tools/call", {"name": "echo"}).ended()
        await probe.request("tools/call", {"name": "chat", "_meta": {"progressToken": 1}}).ended()
        numbers = sorted(each.number for each in bus.watch.requests(ended=True))
    told = [re.search(r"tools/call (\w+) #(\d+):", line) for line in lines()]
    assert [(each[1], int(each[2])) for each in told] == [("echo", numbers[0]), ("chat", numbers[1])]


async def test_a_name_in_a_request_steers_no_terminal(lines, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi(access_log=True)) as probe:
        await probe.request("tools/call", {"name": "\x1b[2J"}).ended()
    assert r"POST /mcp tools/call '\x1b[2J': " in lines()[-1]


@pytest.mark.parametrize(("level", "told"), [(logging.WARNING, 1), (logging.INFO, 0)])
async def test_an_access_log_that_nobody_would_see_says_so(level, told, lines, caplog, autojump_clock):
    async with open_bus(make_server()) as bus:
        caplog.set_level(level, "mcpbus.access")
        bus.asgi(access_log=True)
    assert len(lines()) == told


async def test_the_access_log_decodes_no_call_whose_reply_says_what_it_answers(
    lines, monkeypatch, autojump_clock
):
    """Through ASGI a reply comes over a stream, as many things do, and does not say it."""
    decoded = []
    opened = open_bus(make_server())
    async with opened as bus, open_probe(bus.asgi(access_log=True), shell="http1") as probe:
        session = await probe.initialize("2025-11-25")
        monkeypatch.setattr(access_log, "decode", lambda body: decoded.append(body) or decode(body))
        await session.request("tools/call", {"name": "echo"}).ended()
        assert re.search(r"POST /mcp tools/call echo( #\d+)?: 200", lines()[-1])
        assert not decoded
        await session.notify("notifications/roots/list_changed").ended()
        assert "POST /mcp notifications/roots/list_changed: 202" in lines()[-1]
        assert len(decoded) == 1


@pytest.mark.parametrize(
    "said",
    [
        b"{}",
        b"nonsense",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
    ],
)
async def test_the_access_log_names_no_method_where_none_is_said(said, lines, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi(access_log=True)) as probe:
        answer = await probe.send("POST", said, headers=JSON).ended()
    assert f"127.0.0.1 POST /mcp -: {answer.status}, " in lines()[-1]


async def test_a_method_in_a_body_steers_no_terminal(lines, autojump_clock):
    async with open_bus(make_server()) as bus, open_probe(bus.asgi(access_log=True)) as probe:
        body = msgspec.json.encode({"jsonrpc": "2.0", "method": "\x1b[2J"})
        await probe.send("POST", body, headers=JSON).ended()
    assert r"POST /mcp '\x1b[2J': " in lines()[-1]
