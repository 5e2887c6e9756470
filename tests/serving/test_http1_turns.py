"""What is special about connections of the lane that have no task of their own: turns, and answers that come on a stream."""

import contextvars
import gc
import random
import re
import weakref
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from lanes import get, open_lane, post
from trio.testing import wait_all_tasks_blocked

from mcpbus import Context, Limits, Server, Unauthorized
from mcpbus.fate import Reason
from mcpbus.serving.http1_answer import CONTINUE
from mcpbus.serving.http1_connection import Http1Connection
from mcpbus.serving.http1_push import Push
from mcpbus.transport import Answer

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "turns", "version": "1"},
}
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


def legacy(method, params, *lines):
    """A request, or a notification, of a client that has a session or wants one."""
    id_ = {} if method.startswith("notifications/") else {"id": 1}
    body = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params} | id_)
    fields = b"content-type: application/json", b"accept: application/json, text/event-stream"
    return post(body, *fields, *lines, path="/mcp")


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


async def test_a_client_that_says_no_more_gets_the_whole_of_an_answer_that_is_under_way(autojump_clock):
    async with open_lane(turns=True) as house:
        client = await house.connect()
        client.wire.room = 10
        await client.say(post(b"hello"))
        await client.stream.send_stream.aclose()
        await wait_all_tasks_blocked()
        client.wire.make_room()
        assert (await client.answer())[2] == b"hello"
        await client.ended()


async def test_a_request_whose_task_has_not_begun_counts_as_under_way(autojump_clock):
    async with open_lane(turns=True) as house:
        client = await house.connect()
        start_soon = client.owner.start_soon

        def retire(*args):
            start_soon(*args)
            client.connection.retire()

        client.owner.start_soon = retire
        house.endpoint.go_on.set()
        await client.say(get("/wait"))
        assert (await client.answer())[2] == b"waited"
        await client.ended()


def count_connections():
    return sum(isinstance(kept, Http1Connection | Push) for kept in gc.get_objects())


async def test_a_connection_that_was_closed_leaves_nothing_to_the_garbage_collector(autojump_clock):
    async with open_house() as house:
        gc.collect()
        before = count_connections()
        for end in ("idle", "stream"):
            client = await house.connect()
            await client.say(call("echo", text="x"))
            await client.answer()
            if end == "stream":
                await client.say(call("speak"))
                await client.head()
            await wait_all_tasks_blocked()
            gc.collect()
            gc.disable()
            try:
                await client.leave()
                await client.over.wait()
                await wait_all_tasks_blocked()
                client.connection = client.owner = None  # the harness has a cycle of its own
                assert count_connections() == before
            finally:
                gc.enable()


async def test_a_server_that_has_ended_is_not_remembered_with_the_heads_that_it_read(autojump_clock):
    async with open_house() as house:
        client = await house.connect()
        for _ in range(2):
            await client.say(call("echo", text="x"))
            assert (await client.answer())[0] == 200
        bus = weakref.ref(house.bus)
    del house, client
    gc.collect()
    assert bus() is None


async def test_a_quiet_stream_is_kept_alive_and_an_answer_in_json_is_not(autojump_clock):
    async with open_house(limits=Limits(keep_alive=15)) as house:
        client = await house.connect()
        await client.say(call("wait"))
        start = trio.current_time()
        await client.head()
        for comments in (1, 2, 3):
            assert await client.until(b"3\r\n:\n\n\r\n") == b""
            assert 15 * comments <= trio.current_time() - start < 16.1 * comments
        client = await house.connect()
        await client.say(call("wait").replace(b", text/event-stream", b""))
        await trio.sleep(100)
        house.server.go_on.set()
        status, fields, _ = await client.answer()
        assert (status, fields["content-type"]) == (200, "application/json")
        await client.say(call("echo", text="next"))
        assert (await client.answer())[0] == 200


@pytest.mark.parametrize("seconds", [0, 1])
async def test_a_challenge_that_cannot_be_said_is_a_500(seconds, caplog, autojump_clock):
    async def authenticate(head):
        if seconds:
            await trio.sleep(seconds)
        raise Unauthorized("Bearer\r\nx: y")

    async with (
        Server("turns", authenticate=authenticate).open() as bus,
        open_lane(turns=True, app=bus.asgi()) as house,
    ):
        client = await house.connect()
        await client.say(call("echo", text="x"))
        assert (await client.answer())[0] == 500
        await client.leave()
        await client.over.wait()
    assert "this cannot be a header field" in caplog.text


# -- at the same moment ------------------------------------------------------------------------------------------------


async def test_a_stream_is_cut_off_while_it_is_written(autojump_clock):
    async with open_house() as house:
        client, other = await house.connect(), await house.connect()
        client.wire.room = 10
        await client.say(call("speak"))
        await wait_all_tasks_blocked()
        await client.leave()
        await client.over.wait()
        await other.say(call("echo", text="x"))
        assert (await other.answer())[0] == 200
        await wait_all_tasks_blocked()
        statistics = house.bus.statistics()
        assert (statistics.actors, statistics.requests, dict(statistics.pending)) == (0, 0, {})
        assert statistics.discarded[Reason.LOST] == 1


async def test_a_turn_that_is_due_after_the_connection_was_closed_is_not_taken(autojump_clock):
    async with open_lane(turns=True) as house:
        client, other = await house.connect(), await house.connect()
        house.endpoint.respond_root = lambda _: other.connection.lose() or Answer(204)
        async with trio.open_nursery() as nursery:  # both are found readable by the same look
            nursery.start_soon(client.say, get("/"))
            nursery.start_soon(other.say, post(b"unserved"))
        assert (await client.answer())[0] == 204
        await other.ended()
        assert house.endpoint.bodies == []


@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_that_ends_its_own_session_is_cut_off_and_other_turns_are_taken(
    waits, autojump_clock
):
    async with open_house() as house:
        outcomes = []

        @house.server.tool
        async def leave(ctx: Context) -> str:
            house.bus.tools_changed()  # which is said on a connection whose turn it is not
            ctx.session.close()
            try:
                if waits:
                    await trio.sleep(1)
            except trio.Cancelled:
                outcomes.append("cancelled")
                raise
            outcomes.append("returned")
            return "unheard"

        client, other, stream = await house.connect(), await house.connect(), await house.connect()
        await client.say(legacy("initialize", HELLO))
        (session,) = re.findall(rb"mcp-session-id: \S+", await client.stream.receive_some())
        await client.say(legacy("notifications/initialized", {}, session))
        assert (await client.answer())[0] == 202
        await stream.say(get("/mcp", b"accept: text/event-stream", session))
        await stream.head()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.say, legacy("tools/call", {"name": "leave", "arguments": {}}, session))
            nursery.start_soon(other.say, call("echo", text="x"))
        assert b"closed by the server" in (await client.answer())[2]
        assert (await other.answer())[0] == 200
        assert b"list_changed" in await stream.until(b"0\r\n\r\n")
        await wait_all_tasks_blocked()
        assert outcomes == ["cancelled" if waits else "returned"]
        statistics = house.bus.statistics()
        assert (statistics.sessions, statistics.actors, dict(statistics.pending)) == (0, 0, {})
        for same in (client, stream):
            await same.say(call("echo", text="x"))
            assert (await same.answer())[0] == 200


async def test_what_one_handler_sets_in_its_context_the_next_does_not_see(autojump_clock):
    variable = contextvars.ContextVar("variable", default="unset")
    seen = []
    async with open_lane(turns=True) as house:

        def respond(_):
            seen.append(variable.get())
            variable.set("set")
            return Answer(204)

        house.endpoint.respond_root = respond
        client = await house.connect()
        await client.say(get("/") * 3)
        for _ in range(3):
            await client.answer()
        await client.say(get("/"))
        await client.answer()
    assert seen == ["unset"] * 4


async def test_many_turns_do_not_keep_other_tasks_from_running(autojump_clock):
    async with open_lane(turns=True) as house:
        client = await house.connect()
        await client.say(get("/") * 1000)
        served = []
        while len(house.endpoint.heads) < 1000:
            served.append(len(house.endpoint.heads))
            await trio.lowlevel.checkpoint()
        assert len(served) >= 1000


async def test_connections_are_lost_with_their_lane_and_streams_learn_of_it(autojump_clock):
    async with make_server().open() as bus:
        async with open_lane(turns=True, app=bus.asgi()) as house:
            clients = [await house.connect() for _ in range(4)]
            held, speaking, waiting, _ = clients
            held.wire.room = 10
            await held.say(call("speak"))
            await speaking.say(call("speak"))
            await waiting.say(call("wait"))
            await wait_all_tasks_blocked()
            assert bus.statistics().requests == 3
        for client in clients:
            assert client.over.is_set()
        await wait_all_tasks_blocked()
        statistics = bus.statistics()
        assert (statistics.actors, statistics.requests, dict(statistics.pending)) == (0, 0, {})


# -- the same as with a task -------------------------------------------------------------------------------------------

CHUNKED = b"transfer-encoding: chunked"
SAID = [
    post(b"one"),
    post(b"", b"connection: keep-alive", version="1.0"),
    post(b"x" * 1500),
    post(b"told to go on", b"expect: 100-continue"),
    b"POST /echo HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: t\r\n\r\n" % CHUNKED,
    b"\r\n" + post(b"after a line break"),
    get("/", b"origin: http://x"),
    get("/").replace(b"GET", b"HEAD"),
    get("/empty"),
    get("/stream"),
    get("/wait"),
]
ENDS = [
    b"",
    post(b"broken off")[:-3],
    post(b"x", b"connection: close") + post(b"unserved"),
    post(b"x", version="1.0"),
    get("/fail") + post(b"unserved"),
    b"GET / HTTP/1.1\nhost: x\n\n",
    post(b"x", b"content-length: 1"),
    get("/" + "a" * 9000),
]


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_is_said_and_however_it_is_cut_the_same_is_answered(seed, autojump_clock):
    answers = []
    for turns in (False, True):
        chance = random.Random(seed)
        data = b"".join(chance.choices(SAID, k=chance.randrange(8))) + chance.choice(ENDS)
        async with open_lane(turns=turns) as house, trio.open_nursery() as nursery:
            house.endpoint.go_on.set()
            client = await house.connect()
            nursery.start_soon(say_in_pieces, client, data, chance)
            said = re.sub(rb"date: .*?\r\n", b"", await client.all())
            # Whether a client that asks is told to go on depends on whether its body was there by then.
            answers.append((said.replace(CONTINUE, b""), house.endpoint.bodies))
            nursery.cancel_scope.cancel()
    assert answers[0] == answers[1]


async def say_in_pieces(client, data, chance):
    while data:
        size = chance.choice([1, 10, 100, len(data)])
        piece, data = data[:size], data[size:]
        await client.say(piece)
        if chance.random() < 0.7:
            await wait_all_tasks_blocked()
    await trio.sleep(100)
