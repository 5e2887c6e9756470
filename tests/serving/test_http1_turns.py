"""What is special about connections of the lane that have no task of their own: turns, and answers that come on a stream."""

from contextlib import asynccontextmanager

import msgspec
import trio
from lanes import open_lane, post
from trio.testing import wait_all_tasks_blocked

from mcpbus import Context, Server

CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "turns", "version": "1"},
}


def call(tool, *lines, version="1.1", **arguments):
    """A call of a tool, whose answer may come on a stream."""
    params = {"name": tool, "arguments": arguments, "_meta": CLAIM | {"progressToken": 1}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    fields = (
        b"content-type: application/json",
        b"accept: application/json, text/event-stream",
        b"mcp-protocol-version: 2026-07-28",
        b"mcp-method: tools/call",
        b"mcp-name: %b" % tool.encode(),
    )
    return post(body, *fields, *lines, path="/mcp", version=version)


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
async def open_house(*, limits=None, **options):
    server = make_server()
    async with (
        server.open(limits=limits) as bus,
        open_lane(turns=True, app=bus.asgi(), **options) as house,
    ):
        house.bus, house.server = bus, server
        yield house


async def test_an_answer_that_was_held_up_ends_once(autojump_clock):
    """Its last message comes while the one before waits for the client."""
    async with open_house() as house:
        client = await house.connect()
        client.wire.room = 10
        await client.say(call("speak") + call("echo", text="next"))
        await wait_all_tasks_blocked()
        house.server.go_on.set()
        await wait_all_tasks_blocked()
        client.wire.make_room()
        status, _, body = await client.answer()
        assert (status, body.count(b"data: ")) == (200, 3)
        assert b'"next"' in (await client.answer())[2]


async def test_a_line_break_before_a_request_is_passed_over(autojump_clock):
    async with open_lane(turns=True) as house:
        client = await house.connect()
        for _ in range(2):
            await client.say(b"\r\n" + post(b"x"))
            assert (await client.answer())[0] == 200


async def test_of_requests_sent_in_one_go_none_is_lost_when_the_client_says_no_more(autojump_clock):
    async with open_lane(turns=True) as house:
        client = await house.connect()
        await client.say(post(b"x") * 10)
        await client.stream.send_stream.aclose()
        assert (await client.all()).count(b"200 OK") == 10


async def test_reading_ahead_of_short_requests_is_bounded(autojump_clock):
    async with open_lane(turns=True) as house:
        client = await house.connect()
        most = 0
        await client.say(post(b"x" * 100) * 10_000)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
            most = max(most, client.connection.requests.waiting)
        assert 64 * 1024 <= most <= 128 * 1024
        for _ in range(10_000):
            assert (await client.answer())[2] == b"x" * 100


# -- what goes wrong where nobody waits --------------------------------------------------------------------------------


async def test_what_cannot_be_said_is_the_connections_fault_and_not_the_streams(caplog, autojump_clock):
    async with open_house() as house:
        endpoint = house.bus.asgi().direct("/")
        endpoint.cors_headers = lambda _: [(b"x", b"one\r\ntwo")]
        house.lane.app = house.endpoint
        house.endpoint.direct = lambda _: endpoint
        client = await house.connect()
        await client.say(call("speak"))
        await client.ended()
        await wait_all_tasks_blocked()
        assert "this cannot be a header field" in caplog.text
        assert "actor" not in caplog.text
        statistics = house.bus.statistics()
        assert (statistics.actors, statistics.requests) == (0, 0)
    assert house.bus.ledger.balance() == 0
