"""What is special about HTTP/1.1 connections that have no task of their own: turns, and answers that come on a stream."""

import contextvars
import gc
import re
import weakref

import pytest
import trio
from houses import HELLO, call, legacy, make_server, open_house
from lanes import Endpoint, get, open_lane, post
from trio.testing import wait_all_tasks_blocked

from mcpbus import Context, Limits, Server, UnauthorizedError
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.routes import Reason
from mcpbus.serving.http1.connection import Http1Connection
from mcpbus.serving.http1.connection_io import ConnectionIO
from mcpbus.serving.http1.response_writer import Http1ResponseWriter
from mcpbus.stores import MemoryEventStore
from tests.at_home import CONTAINED, READ_WHOLE


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
    async with open_lane() as house:
        client = await house.connect()
        for _ in range(2):
            await client.say(b"\r\n" + post(b"x"))
            assert (await client.answer())[0] == 200


async def test_of_requests_sent_in_one_go_none_is_lost_when_the_client_says_no_more(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(post(b"x") * 10)
        await client.stream.send_stream.aclose()
        assert (await client.all()).count(b"200 OK") == 10


def in_chunks(request, *sizes):
    """A request whose body comes in chunks of these sizes, and one with the rest."""
    head, _, body = request.partition(b"\r\n\r\n")
    head = re.sub(rb"content-length: \d+", b"transfer-encoding: chunked", head)
    pieces = []
    for size in (*sizes, len(body)):
        pieces.append(body[:size])
        body = body[size:]
    framed = [b"%x;x=y\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return b"%b\r\n\r\n%b0\r\n\r\n" % (head, b"".join(framed))


@pytest.mark.parametrize("step", [1, 7, 100, 10_000])
async def test_a_body_in_chunks_needs_no_task_however_it_is_cut(step, autojump_clock):
    async with open_house() as house:
        client = await house.connect()
        data = in_chunks(call("echo", text="hi"), 3, 100)
        for start in range(0, len(data), step):
            await client.say(data[start : start + step])
            await wait_all_tasks_blocked()
            assert client.connection.work is None
        assert b'"hi"' in (await client.answer())[2]


@pytest.mark.parametrize("size", [10_000, 20_000])
async def test_a_long_body_in_chunks_is_read_by_an_eager_task(size, autojump_clock):
    async with open_house() as house:
        client = await house.connect()
        data = in_chunks(call("echo", text="x" * 30_000), size, 1000)
        await client.say(data[: size + 1000])
        await wait_all_tasks_blocked()
        assert client.connection.wire.receiving is (size > 16_384)
        await client.say(data[size + 1000 :])
        assert b"x" * 30_000 in (await client.answer())[2]


@pytest.mark.parametrize(
    ("size", "first", "waits"),
    [
        (100_000, None, False),
        (130_000, None, False),
        (140_000, None, True),  # more than two reads
        (100_000, 90_000, True),  # the rest has yet to come
        (60_000, 40_000, True),  # it was not cut off here
    ],
)
async def test_a_body_that_one_read_cut_off_is_not_waited_for_if_the_rest_of_it_is_there(
    size, first, waits, monkeypatch, autojump_clock
):
    waited = []
    receive = ConnectionIO.receive_body
    monkeypatch.setattr(ConnectionIO, "receive_body", lambda *args: waited.append(args) or receive(*args))
    async with open_house() as house:
        client = await house.connect()
        data = call("echo", text="x" * size) + call("echo", text="next")
        await client.say(data[:first])
        await wait_all_tasks_blocked()
        if first is not None:
            await client.say(data[first:])
        assert b"x" * size in (await client.answer())[2]
        assert b'"next"' in (await client.answer())[2]
        assert bool(waited) is waits


@READ_WHOLE
async def test_what_is_wrong_with_a_body_is_not_said_before_who_serves_it_has_looked_at_its_head(
    autojump_clock,
):
    async with open_house() as house:
        client = await house.connect()
        data = in_chunks(call("echo", text="hi")).replace(b"\r\n0\r\n\r\n", b"\r\nx\r\n")
        await client.say(data.replace(b"/mcp", b"/lost"))
        assert (await client.answer())[0] == 404


@pytest.mark.parametrize("cut", [1, 500])
async def test_chunks_that_are_none_end_the_connection_in_a_turn_too(cut, autojump_clock):
    async with open_house() as house:
        client = await house.connect()
        data = in_chunks(call("echo", text="hi"), 3).replace(b"\r\n0\r\n\r\n", b"\r\nx\r\n")
        await client.say(data[:cut])
        await client.say(data[cut:])
        assert (await client.answer())[0] == 400
        await client.ended()


@pytest.mark.parametrize(("end", "limit"), [(20, "head_timeout"), (-1, "body_timeout")])
async def test_who_says_too_little_is_counted(end, limit, autojump_clock):
    async with open_house() as house:
        client = await house.connect()
        await client.say(call("echo", text="hi")[:end])
        assert (await client.answer())[0] == 408
        assert house.bus.statistics().limits_reached == {limit: 1}


@pytest.mark.parametrize("path", ["/wait", "/stream"])
async def test_who_has_sent_much_ahead_is_missed_when_it_leaves(path, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get(path))
        await house.endpoint.waiting.wait()
        await client.say(post(b"x" * 1000) * 100)
        await trio.testing.wait_all_tasks_blocked()
        assert not house.endpoint.gone
        await client.leave()
        await house.endpoint.left.wait()
        await client.over.wait()


async def test_reading_ahead_of_short_requests_is_bounded(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        most = 0
        await client.say(post(b"x" * 100) * 10_000)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
            most = max(most, client.connection.wire.requests.waiting)
        assert 64 * 1024 <= most <= 128 * 1024
        for _ in range(10_000):
            assert (await client.answer())[2] == b"x" * 100


# -- what goes wrong where nobody waits --------------------------------------------------------------------------------


@CONTAINED
async def test_what_cannot_be_said_is_the_connections_fault_and_not_the_streams(caplog, autojump_clock):
    async with open_house() as house:
        endpoint = house.bus.asgi().direct("/")
        endpoint.cors_headers = lambda _: [(b"x", b"one\r\ntwo")]
        house.lane.app.direct = lambda _: endpoint
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
    async with open_lane() as house:
        client = await house.connect()
        client.wire.room = 10
        await client.say(post(b"hello"))
        await client.stream.send_stream.aclose()
        await wait_all_tasks_blocked()
        client.wire.make_room()
        assert (await client.answer())[2] == b"hello"
        await client.ended()


@pytest.mark.parametrize("tool", ["wait", "speak"])
async def test_a_client_that_has_left_before_a_handler_waits_cancels_it(tool, autojump_clock):
    async def authenticate(head):
        await trio.sleep(1)
        return "somebody"

    async with open_house(authenticate=authenticate) as house:
        client = await house.connect()
        await client.say(call(tool))
        await client.leave()
        with trio.fail_after(2):
            await client.over.wait()
        assert house.bus.statistics().requests == 0
        assert house.bus.ledger.balance() == 0


async def test_a_request_whose_task_has_not_begun_counts_as_under_way(autojump_clock):
    async with open_lane() as house:
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
    return sum(isinstance(kept, Http1Connection | Http1ResponseWriter) for kept in gc.get_objects())


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
        raise UnauthorizedError("Bearer\r\nx: y")

    async with (
        Server("turns", authenticate=authenticate).open() as bus,
        open_lane(app=bus.asgi()) as house,
    ):
        client = await house.connect()
        await client.say(call("echo", text="x"))
        assert (await client.answer())[0] == 500
        await client.leave()
        await client.over.wait()
    assert "this cannot be a header field" in caplog.text


async def test_an_answer_that_finds_its_client_gone_is_lost(autojump_clock):
    async with open_house() as house:
        client = await house.connect()
        await client.stream.receive_stream.aclose()
        await client.say(call("echo", text="x"))
        await client.over.wait()
        await wait_all_tasks_blocked()
        statistics = house.bus.statistics()
        assert (statistics.emitted, statistics.delivered, dict(statistics.pending)) == (1, 0, {})
        assert statistics.discarded[Reason.LOST] == 1


async def test_what_an_endpoint_says_of_a_head_it_says_once_and_another_one_for_itself(autojump_clock):
    class Asked(Endpoint):
        def __init__(self, origin):
            super().__init__()
            self._origin = origin
            self.asked = 0

        def cors_headers(self, head):
            self.asked += 1
            return [(b"access-control-allow-origin", self._origin)]

    first, second = Asked(b"https://one.example"), Asked(b"https://two.example")
    async with open_lane(app=first) as house:
        client = await house.connect()
        for endpoint in (first, first, second, second, first):
            house.lane.app.direct = lambda _, served=endpoint: served
            await client.say(post(b"x"))
            assert (await client.answer())[1]["access-control-allow-origin"] == endpoint._origin.decode()
    assert (first.asked, second.asked) == (2, 1)


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
    async with open_lane() as house:
        client, other = await house.connect(), await house.connect()
        house.endpoint.respond_root = lambda _: other.connection.lose() or HttpResponse(204)
        async with trio.open_nursery() as nursery:  # both are found readable by the same look
            nursery.start_soon(client.say, get("/"))
            nursery.start_soon(other.say, post(b"unserved"))
        assert (await client.answer())[0] == 204
        await other.ended()
        assert house.endpoint.bodies == []


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_that_ends_its_own_session_is_cut_off_and_other_turns_are_taken(
    waits, known, autojump_clock
):
    async def authenticate(_):
        return "somebody"

    async with open_house(authenticate=authenticate if known else None) as house:
        house.server.go_on.set()
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
            nursery.start_soon(other.say, call("wait"))
        assert b"closed by the server" in (await client.answer())[2]
        assert b"waited" in (await other.answer())[2]
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
    async with open_lane() as house:

        def respond(_):
            seen.append(variable.get())
            variable.set("set")
            return HttpResponse(204)

        house.endpoint.respond_root = respond
        client = await house.connect()
        await client.say(get("/") * 3)
        for _ in range(3):
            await client.answer()
        await client.say(get("/"))
        await client.answer()
    assert seen == ["unset"] * 4


async def test_nor_does_it_where_the_first_speaks_to_a_stream_that_is_kept(autojump_clock):
    variable = contextvars.ContextVar("variable", default="unset")
    seen = []
    server = make_server()

    @server.tool
    async def chat(ctx: Context) -> str:
        seen.append(variable.get())
        variable.set("set")
        await ctx.info("said")
        return "done"

    async with (
        server.open(event_store=MemoryEventStore()) as bus,
        open_lane(app=bus.asgi()) as house,
    ):
        client = await house.connect()
        await client.say(legacy("initialize", HELLO))
        await client.answer()
        line = b"mcp-session-id: %b" % next(iter(bus.sessions)).encode()
        await client.say(legacy("notifications/initialized", {}, line))
        await client.answer()
        await client.say(legacy("tools/call", {"name": "chat", "arguments": {}}, line) * 3)
        for _ in range(3):
            assert (await client.answer())[2].count(b"\ndata: {") == 2
    assert seen == ["unset"] * 3


async def test_many_turns_do_not_keep_other_tasks_from_running(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get("/") * 1000)
        served = []
        while len(house.endpoint.heads) < 1000:
            served.append(len(house.endpoint.heads))
            await trio.lowlevel.checkpoint()
        assert len(served) >= 1000


async def test_connections_are_lost_with_their_lane_and_streams_learn_of_it(autojump_clock):
    async with make_server().open() as bus:
        async with open_lane(app=bus.asgi()) as house:
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
