"""WebSocket over HTTP/1.1 of our own, as far as an ASGI server would stand between: the handshake, the frames, tasks and writes."""

import json
from functools import partial

import pytest
import trio
from channels import call, house, initialize, make_server, request
from rfc6455 import CLOSE, CONTINUATION, PING, TEXT, close, frame
from websocket_tunnels import tunnel_ws
from websocket_wires import KEY, open_wire, upgrade, wire_ws

from mcpbus import Context
from mcpbus.serving.websocket.codec import WebSocketCodec
from mcpbus.testing import open_bus, wait_until_idle

HOST = b"host: localhost"


@pytest.fixture(params=[True, False], ids=["turns", "tasks"])
def turns(request):
    return request.param


WAYS = {
    "turns": partial(wire_ws, turns=True),
    "tasks": partial(wire_ws, turns=False),
    "turns of HTTP/2": partial(tunnel_ws, turns=True),
    "tasks of HTTP/2": partial(tunnel_ws, turns=False),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def ws(request):
    return request.param


def text(message):
    return frame(TEXT, json.dumps(message).encode())


# -- the handshake -------------------------------------------------------------------------------


async def test_the_answer_proves_that_the_request_was_read(turns, autojump_clock):
    """RFC 6455, section 1.3."""
    async with house() as home, open_wire(home.app, turns=turns) as client:
        client.send_bytes(upgrade(HOST, key=b"dGhlIHNhbXBsZSBub25jZQ=="))
        await client.answered()
        fields = dict(client.headers)
        assert fields[b"sec-websocket-accept"] == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert (fields[b"upgrade"], fields[b"connection"]) == (b"websocket", b"Upgrade")
        assert b"sec-websocket-extensions" not in fields


REFUSED = {
    "no version": (upgrade(HOST, version=None), 426),
    "an old version": (upgrade(HOST, version=b"8"), 426),
    "two versions": (upgrade(HOST, b"sec-websocket-version: 8"), 426),
    "no key": (upgrade(HOST, key=None), 400),
    "a short key": (upgrade(HOST, key=b"c2hvcnQ="), 400),
    "a key that is not Base64": (upgrade(HOST, key=KEY[:9] + b"*" + KEY[9:]), 400),
    "two keys": (upgrade(HOST, b"sec-websocket-key: " + KEY), 400),
    "a body": (upgrade(HOST, b"content-length: 4") + b"body", 400),
    "another host, and no key": (upgrade(b"host: evil.example", key=None), 403),
    "another path, and no key": (upgrade(HOST, path="/other", key=None), 404),
}


@pytest.mark.parametrize(("said", "status"), REFUSED.values(), ids=REFUSED)
async def test_a_request_that_is_not_as_it_must_be_is_refused(said, status, turns, autojump_clock):
    async with house() as home, open_wire(home.app, turns=turns) as client:
        client.send_bytes(said)
        await client.ended()
        assert client.status == status
        assert client.body
        assert (b"connection", b"close") in client.headers
        assert ((b"sec-websocket-version", b"13") in client.headers) is (status == 426)
        assert home.bus.statistics().actors == 0


async def test_a_failure_to_find_out_who_asks_is_answered(turns, autojump_clock, caplog):
    async def authenticate(head):
        raise RuntimeError("no connection to the directory")

    async with house(authenticate=authenticate) as home, open_wire(home.app, turns=turns) as client:
        client.send_bytes(upgrade(HOST))
        await client.ended()
        assert client.status == 500
        assert b"directory" not in client.body
    assert "no connection to the directory" in caplog.text


async def test_what_is_sent_before_the_answer_is_served(turns, autojump_clock):
    async with house() as home, open_wire(home.app, turns=turns) as client:
        client.send_bytes(upgrade(HOST) + text(request(1, "ping")) + text(request(2, "ping")))
        assert [(await client.message())["id"] for _ in range(2)] == [1, 2]


async def test_requests_come_before_an_upgrade(turns, autojump_clock):
    async with house() as home, open_wire(home.app, turns=turns) as client:
        health = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
        client.send_bytes(health)
        await home.quiet()
        client.send_bytes(upgrade(HOST))
        await client._until(lambda: client.status == 200)
        await home.quiet()
        assert len(home.bus.session_directory.shares) == 1


# -- faults --------------------------------------------------------------------------------------

FAULTS = {
    "nothing is masked": (frame(TEXT, b"{}", masked=False), 1002),
    "a reserved bit": (frame(TEXT, b"{}", rsv=4), 1002),
    "not UTF-8": (frame(TEXT, b"\xff"), 1007),
    "too many pings": (frame(PING) * 101, 1008),
    "endless pieces of nothing": (frame(TEXT, b"", fin=False) + frame(CONTINUATION, fin=False) * 100, 1008),
    "a close that is none": (frame(CLOSE, b"x"), 1002),
}


@pytest.mark.parametrize(("said", "code"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_ends_the_connection_with_its_code(said, code, ws, autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home, ws(home.app, "2025-11-25") as client:
        client.say(call(1, "hang"))
        await home.quiet()
        client.answers = False
        begun = trio.current_time()
        client.send_bytes(said)
        await client.ended()
        assert client.close == code
        assert outcomes == [" ended"]
        # The server waited for the client's close, which did not come.
        assert 1 <= trio.current_time() - begun < 2
        await home.assert_nothing_is_left()


async def test_messages_behind_a_fault_are_not_served(ws, autojump_clock):
    async with house() as home, ws(home.app) as client:
        client.send_bytes(text(request(1, "ping")) + frame(3) + text(request(2, "ping")))
        await client.ended()
        assert [m["id"] for m in client.messages] == [1]


async def test_a_client_that_goes_on_and_on_after_a_fault_is_cut_off(ws, autojump_clock):
    async with house() as home, ws(home.app) as client:
        begun = trio.current_time()
        client.send_bytes(frame(3))
        for _ in range(20):
            client.send_bytes(bytes(100_000))
            await trio.testing.wait_all_tasks_blocked()
        await client.ended()
        assert trio.current_time() == begun


async def test_messages_that_are_unfinished_are_counted_and_the_longest_go(ws, autojump_clock):
    limits = {"memory_bytes": 50_000}
    async with house(limits=limits) as home, ws(home.app) as client, ws(home.app) as other:
        other.send(TEXT, b" " * 10_000, fin=False)
        client.send(TEXT, b" " * 20_000, fin=False)
        await home.quiet()
        assert home.bus.budget.held == 30_000
        client.send(CONTINUATION, b" " * 25_000, fin=False)
        await client.ended()
        assert client.close == 1013
        assert home.bus.budget.held == 10_000
        assert home.bus.statistics().limits_reached == {"memory_bytes": 1}
        other.send(CONTINUATION, json.dumps(request(1, "ping")).encode())
        assert (await other.message())["id"] == 1
        assert home.bus.budget.held == 0


# -- the end -------------------------------------------------------------------------------------


async def test_a_close_is_answered_and_ends_what_runs(ws, autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home, ws(home.app, "2025-11-25") as client:
        client.say(call(1, "hang"))
        await home.quiet()
        begun = trio.current_time()
        client.send(CLOSE, close(4000, b"bye"))
        await client.ended()
        assert (client.close, trio.current_time()) == (4000, begun)
        assert outcomes == [" ended"]
        await home.assert_nothing_is_left()


async def test_what_is_behind_a_close_is_not_served(ws, autojump_clock):
    async with house() as home, ws(home.app) as client:
        client.send_bytes(frame(CLOSE, close(1000)) + text(request(1, "ping")))
        await client.ended()
        assert client.messages == []


async def test_a_client_that_does_not_answer_our_close_is_not_waited_for_long(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25") as client:
        client.answers = False
        begun = trio.current_time()
        next(iter(home.bus.sessions.values())).close()
        await client.ended()
        assert client.close == 1000
        assert 1 <= trio.current_time() - begun < 2


async def test_a_client_that_answers_it_is_let_go_at_once(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25") as client:
        begun = trio.current_time()
        next(iter(home.bus.sessions.values())).close()
        await client.ended()
        assert trio.current_time() == begun


async def test_a_tool_may_end_its_session(turns, autojump_clock):
    server = make_server([])

    @server.tool
    async def leave(ctx: Context) -> None:
        ctx.session.close()

    async with open_bus(server) as bus, wire_ws(bus.asgi(), "2025-11-25", turns=turns) as client:
        client.say(call(1, "leave"))
        await client.ended()
        assert client.close == 1000
        assert bus.statistics().actors == 0


async def test_a_failure_of_ours_ends_one_connection(ws, autojump_clock, monkeypatch, caplog):
    async with house() as home, ws(home.app) as client, ws(home.app) as other:

        def fail(frames, messages):
            raise MemoryError("no room for a frame")

        with monkeypatch.context() as patch:
            patch.setattr(WebSocketCodec, "encode", fail)
            client.say(request(1, "ping"))
            await client.ended()
        assert (await other.ask(request(1, "ping")))["id"] == 1
    assert "no room for a frame" in caplog.text


# -- pings ---------------------------------------------------------------------------------------


async def test_a_quiet_connection_is_pinged_and_stays(ws, autojump_clock):
    options = {"websocket_ping_interval": 10}
    async with house() as home, ws(home.app, "2025-11-25", options=options) as client:
        await trio.sleep(3000)
        assert 250 < client.pings <= 300
        assert (await client.ask(request(1, "ping")))["result"] == {}


async def test_a_client_that_answers_no_ping_for_the_write_deadline_is_dead(ws, autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home, ws(home.app, "2025-11-25") as client:
        client.answers = False
        client.say(call(1, "hang"))
        begun = trio.current_time()
        await client.ended()
        assert 45 <= trio.current_time() - begun < 50
        assert (client.pings, client.close) == (2, None)
        assert outcomes == [" ended"]
        assert home.bus.statistics().limits_reached == {"write_deadline": 1}


async def test_one_that_says_something_else_is_not(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25") as client:
        client.answers = False
        for n in range(1, 10):
            await trio.sleep(40)
            client.say(request(n, "ping"))
        assert not client.over.is_set()


# -- messages ------------------------------------------------------------------------------------


async def test_a_long_message_and_an_array_are_served_in_order(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-03-26") as client:
        long = request(1, "ping", {"padding": "x" * 200_000})
        array = [request(2, "ping"), request(3, "ping")]
        client.send_bytes(text(long) + text(array) + text(request(4, "ping")))
        assert [(await client.message())["id"] for _ in range(4)] == [1, 2, 3, 4]


async def test_long_messages_are_taken_one_after_the_other(ws, autojump_clock):
    async with house() as home, ws(home.app) as client:
        async with home.bus.budget.line:
            client.say(request(1, "ping", {"padding": "x" * 200_000}))
            client.say(request(2, "ping"))
            await home.quiet()
            assert client.messages == []
        assert [(await client.message())["id"] for _ in range(2)] == [1, 2]


async def test_who_asks_much_in_one_go_does_not_get_all_of_our_time(ws, autojump_clock):
    async with house() as home, ws(home.app) as client, ws(home.app) as other:
        client.send_bytes(b"".join(text(request(n, "ping")) for n in range(500)))
        other.say(request(1, "ping"))
        await other.message()
        assert len(client.frames) < 100
        assert [(await client.message())["id"] for _ in range(500)] == list(range(500))


async def test_a_message_in_pieces_is_served(ws, autojump_clock):
    async with house() as home, ws(home.app) as client:
        whole = json.dumps(request(1, "ping")).encode()
        for n, byte in enumerate(whole):
            client.send(CONTINUATION if n else TEXT, bytes([byte]), fin=n == len(whole) - 1)
            await trio.sleep(0.1)
        assert (await client.message())["id"] == 1


async def test_a_call_that_waits_holds_up_none_behind_it(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25") as client:
        calls = [call(n, "nap", {"seconds": 5 - n}) for n in range(1, 5)]
        begun = trio.current_time()
        client.send_bytes(b"".join(map(text, [*calls, request(5, "ping")])))
        assert [(await client.message())["id"] for _ in range(5)] == [5, 4, 3, 2, 1]
        assert trio.current_time() == begun + 4


@pytest.mark.parametrize("how", ["breaks", "is closed"])
async def test_what_is_behind_a_call_in_whose_turn_the_connection_ends_does_not_begin(how, autojump_clock):
    """Past 16 messages a task takes them, and what is said there is written before the next one is taken."""
    server, begun = make_server([]), []

    @server.tool
    async def leave(ctx: Context) -> None:
        if how == "breaks":
            client.wire.near.receive_stream.close()
        else:
            ctx.session.close()

    @server.tool
    async def begin(number: int) -> None:
        begun.append(number)

    async with open_bus(server) as bus, wire_ws(bus.asgi(), "2025-11-25", turns=True) as client:
        client.answers = False
        await trio.sleep(1)  # what is said next is written at once
        quiet = [{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}] * 16
        calls = [call(100 + n, "begin", {"number": n}, modern=n % 2) for n in range(20)]
        client.send_bytes(b"".join(map(text, [*quiet, call(99, "leave"), *calls])))
        await client.ended()
        await wait_until_idle(bus)
        assert begun == []
        assert bus.statistics().actors == 0


async def test_a_long_message_that_waits_for_its_turn_when_the_connection_ends_is_not_served(
    ws, autojump_clock
):
    server, begun = make_server([]), []

    @server.tool
    async def begin(padding: str) -> None:
        begun.append(len(padding))

    async with open_bus(server) as bus, ws(bus.asgi(), "2025-11-25") as client:
        async with bus.budget.line:
            for modern in (False, True):
                client.say(call(1, "begin", {"padding": "x" * 20_000}, modern=modern))
            await wait_until_idle(bus)
            next(iter(bus.sessions.values())).close()
            await wait_until_idle(bus)
        await client.ended()
        await wait_until_idle(bus)
        assert begun == []


async def test_a_call_is_cancelled_by_what_comes_behind_it(ws, autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home, ws(home.app, "2025-11-25") as client:
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        client.send_bytes(text(call(1, "hang")) + text(cancel))
        await home.quiet()
        assert outcomes == [" ended"]
        assert (await client.ask(request(2, "ping")))["result"] == {}


@pytest.mark.eagerness
@pytest.mark.leadership
async def test_a_handler_that_does_not_wait_has_no_task_of_its_own(turns, autojump_clock):
    server, tasks = make_server([]), []

    @server.tool
    async def note() -> None:
        tasks.append(trio.lowlevel.current_task())

    async with open_bus(server) as bus, wire_ws(bus.asgi(), "2025-11-25", turns=turns) as client:
        for n in range(1, 6):
            await client.ask(call(n, "note"))
        assert len(set(tasks)) == 1


def count_writes(wire):
    """Return a list to which the size of each write is added from now on."""
    written, send_now = [], wire.send_now

    def count(data):
        written.append(len(data))
        return send_now(data)

    wire.send_now = count
    return written


async def test_what_is_said_in_one_turn_is_written_in_one_piece(autojump_clock):
    async with house() as home, wire_ws(home.app, turns=True) as client:
        await trio.sleep(1)
        written = count_writes(client.wire)
        client.send_bytes(b"".join(text(request(n, "ping")) for n in range(10)))
        assert [(await client.message())["id"] for n in range(10)] == list(range(10))
        assert len(written) == 1


async def test_what_is_said_first_is_written_at_once_and_the_rest_together(autojump_clock):
    async with house() as home, wire_ws(home.app, "2025-11-25", turns=True) as client:
        await trio.sleep(1)
        written = count_writes(client.wire)
        session = next(iter(home.bus.sessions.values()))
        for n in range(10):
            session.log("info", n)
            assert len(written) == 1
        await home.quiet()
        assert len(written) == 2
        assert [m["params"]["data"] for m in client.messages[1:]] == list(range(10))


async def test_a_reply_to_a_client_that_has_closed_is_not_delivered(autojump_clock):
    async with house() as home, wire_ws(home.app, turns=True) as client:
        client.send_bytes(text(request(1, "ping")) + frame(CLOSE, close(1000)))
        await client.ended()
        await home.assert_nothing_is_left()
        assert (client.messages, home.bus.statistics().delivered) == ([], 0)


async def test_a_client_for_which_too_much_waits_is_given_up_at_once(ws, autojump_clock):
    limits = {"memory_bytes": 100_000}
    async with house(limits=limits) as home, ws(home.app, "2025-11-25") as client:
        client.stall()
        begun = trio.current_time()
        client.say(call(1, "swell", {"size": 80_000}))
        await client.ended()
        assert trio.current_time() - begun < 1
        assert home.bus.statistics().limits_reached == {"memory_bytes": 1}
        await home.assert_nothing_is_left()


async def test_a_quiet_connection_has_no_task(autojump_clock):
    async with house() as home, wire_ws(home.app, "2025-11-25", turns=True):
        await home.quiet()
        before = trio.lowlevel.current_statistics().tasks_living
        async with wire_ws(home.app, "2025-11-25", turns=True):
            await home.quiet()
            # The lane of the other one, its client, and what waits for the answer of none.
            alone = trio.lowlevel.current_statistics().tasks_living - before
        async with wire_ws(home.app, "2025-11-25", turns=False):
            await home.quiet()
            assert trio.lowlevel.current_statistics().tasks_living - before > alone


async def test_where_the_kernel_waits_for_no_more_a_task_does(autojump_clock, monkeypatch):
    async with house() as home, open_wire(home.app, turns=True) as client:
        watch = client.connection.reactor.watch
        client.send_bytes(upgrade(HOST))

        def refuse(connection, turn):
            if client.connection.wire.doing.name == "SERVING":
                raise OSError("no space left on device")
            watch(connection, turn)

        client.connection.reactor.watch = refuse
        await client.answered()
        client.say(initialize("2025-11-25"))
        assert (await client.message())["id"] == 0
