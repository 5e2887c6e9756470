"""WebSocket over HTTP/2 (RFC 8441), as far as it is another thing than over HTTP/1.1: how it is asked for, streams and windows, the end."""

import h2.errors
import h2.events
import pytest
import trio
import trio.testing
from channels import call, house, make_server, request
from rfc6455 import TEXT, frame
from test_asgi_websocket import unasked
from websocket_tunnels import open_tunnel, tunnel_ws

from mcpbus.testing import open_bus

HOST = (":authority", "localhost")


@pytest.fixture(params=[True, False], ids=["turns", "tasks"])
def turns(request):
    return request.param


# -- how it is asked for -------------------------------------------------------------------------


async def test_that_it_may_be_asked_for_is_announced(autojump_clock):
    async with open_tunnel(unasked) as client:
        assert client.connection.remote_settings.enable_connect_protocol == 1


REFUSED = {
    "no version": ([HOST], {"version": None}, 426),
    "an old version": ([HOST], {"version": "8"}, 426),
    "a body": ([HOST, ("content-length", "4")], {}, 400),
    "another host, and no version": ([(":authority", "evil.example")], {"version": None}, 403),
    "another path, and no version": ([HOST], {"version": None, "path": "/other"}, 404),
    "another protocol": ([HOST], {"protocol": "connect-udp"}, 501),
    "no path": ([HOST], {"path": "*"}, 400),
}


@pytest.mark.parametrize(("fields", "how", "status"), REFUSED.values(), ids=REFUSED)
async def test_a_request_that_is_not_as_it_must_be_is_refused(fields, how, status, turns, autojump_clock):
    async with house() as home, open_tunnel(home.app, turns=turns) as client:
        begun = trio.current_time()
        client.connect(*fields, **how)
        await client.ended()
        assert (client.status, trio.current_time()) == (status, begun)
        assert client.body
        assert ((b"sec-websocket-version", b"13") in client.headers) is (status == 426)
        assert home.bus.statistics().actors == 0


async def test_a_failure_to_find_out_who_asks_is_answered(turns, autojump_clock, caplog):
    async def authenticate(head):
        raise RuntimeError("no connection to the directory")

    async with house(authenticate=authenticate) as home, open_tunnel(home.app, turns=turns) as client:
        client.connect(HOST)
        await client.ended()
        assert client.status == 500
        assert b"directory" not in client.body
    assert "no connection to the directory" in caplog.text


async def test_only_connect_has_a_protocol(autojump_clock):
    async with house() as home, open_tunnel(home.app) as client:
        client.stream_id = client.connection.get_next_available_stream_id()
        fields = [
            (":method", "GET"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":path", "/mcp"),
            HOST,
        ]
        client.connection.config.validate_outbound_headers = False
        client.connection.send_headers(client.stream_id, fields)
        client._flush()
        await client.ended()
        assert client.reset == h2.errors.ErrorCodes.PROTOCOL_ERROR


async def test_who_leaves_before_the_answer_leaves_nothing(turns, autojump_clock):
    async def authenticate(head):
        await trio.sleep(5)
        return "ada"

    async with house(authenticate=authenticate) as home, open_tunnel(home.app, turns=turns) as client:
        client.connect(HOST)
        await home.quiet()
        client.abort()
        await trio.sleep(10)
        await home.assert_nothing_is_left()


async def test_what_is_sent_before_the_answer_is_served(turns, autojump_clock):
    async with house() as home, open_tunnel(home.app, turns=turns) as client:
        client.connect(HOST)
        client.say(request(1, "ping"))
        client.say(request(2, "ping"))
        assert [(await client.message())["id"] for _ in range(2)] == [1, 2]


# -- streams, and their windows ------------------------------------------------------------------


async def test_a_request_beside_it_is_answered_on_the_same_connection(turns, autojump_clock):
    async with house() as home, tunnel_ws(home.app, "2025-11-25", turns=turns) as client:
        health = client.connection.get_next_available_stream_id()
        head = [(":method", "GET"), (":scheme", "http"), (":path", "/health"), HOST]
        client.connection.send_headers(health, head, end_stream=True)
        client._flush()
        await home.quiet()
        (head,) = [event for event in client.others if isinstance(event, h2.events.ResponseReceived)]
        assert (head.stream_id, dict(head.headers)[b":status"]) == (health, b"200")
        assert (await client.ask(request(1, "ping")))["result"] == {}


async def test_no_more_is_taken_than_the_channel_has_room_for(turns, autojump_clock):
    """What is behind fills the stream's window, and waits with the client."""
    async with house(limits={"outbox_bytes": 5_000}) as home, tunnel_ws(home.app, turns=turns) as client:
        client.stall()
        for n in range(500):
            client.say(request(n, "ping", {"padding": "x" * 1000}))
            await trio.testing.wait_all_tasks_blocked()
        assert len(client._unsaid) > 300_000
        client.resume()
        assert [(await client.message())["id"] for _ in range(500)] == list(range(500))


async def test_a_message_that_is_longer_than_any_window_is_said(turns, autojump_clock):
    async with house() as home, tunnel_ws(home.app, "2025-11-25", turns=turns) as client:
        answer = await client.ask(call(1, "swell", {"size": 300_000}))
        assert answer["result"]["content"][0]["text"] == "x" * 300_000


async def test_a_client_that_opens_no_window_is_cut_off(turns, autojump_clock):
    outcomes = []
    options = {"write_deadline": 20}
    async with (
        house(outcomes=outcomes) as home,
        tunnel_ws(home.app, "2025-11-25", turns=turns, options=options) as client,
    ):
        client.stall()
        client.say(call(1, "hang"))
        client.say(call(2, "swell", {"size": 10}))
        begun = trio.current_time()
        await client.ended()
        assert client.reset == h2.errors.ErrorCodes.CANCEL
        assert 20 <= trio.current_time() - begun < 21
        assert home.bus.statistics().limits_reached == {"write_deadline": 1}
        assert outcomes == [" ended"]
        await home.assert_nothing_is_left()


# -- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", ["disconnect", "abort"])
async def test_a_client_that_leaves_ends_what_runs(leave, turns, autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home, tunnel_ws(home.app, "2025-11-25", turns=turns) as client:
        client.say(call(1, "hang"))
        await home.quiet()
        begun = trio.current_time()
        if leave == "abort":
            client.abort()
        else:
            await client.disconnect()
        await home.quiet()
        assert (outcomes, trio.current_time()) == ([" ended"], begun)
        await home.assert_nothing_is_left()
        if leave == "disconnect":
            await client.ended()
            assert client.reset is None
        assert client.server.idle_since() is not None


async def test_the_end_may_come_with_the_last_message(turns, autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home, tunnel_ws(home.app, "2025-11-25", turns=turns) as client:
        said = frame(TEXT, b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang"}}')
        client.connection.send_data(client.stream_id, said, end_stream=True)
        client._flush()
        await client.ended()
        await home.quiet()
        assert outcomes == [" ended"]
        await home.assert_nothing_is_left()


async def test_one_that_ended_before_it_began_is_over(turns, autojump_clock):
    async with house() as home, open_tunnel(home.app, turns=turns) as client:
        client.connect(HOST, end=True)
        await client.ended()
        assert client.accepted
        await home.assert_nothing_is_left()


async def test_a_drain_closes_it_and_then_the_connection(turns, autojump_clock):
    async with house() as home, tunnel_ws(home.app, "2025-11-25", turns=turns) as client:
        client.server.retire()
        assert (await client.ask(request(1, "ping")))["result"] == {}
        await home.bus.drain(5)
        await client.ended()
        assert client.close == 1001
        await trio.testing.wait_all_tasks_blocked()
        assert client.wire.closed


async def test_a_tool_that_fails_leaves_the_stream_as_it_is(turns, autojump_clock):
    server = make_server([])

    @server.tool
    async def fail() -> None:
        await trio.sleep(1)
        raise RuntimeError("no")

    async with open_bus(server) as bus, tunnel_ws(bus.asgi(), "2025-11-25", turns=turns) as client:
        assert (await client.ask(call(1, "fail")))["result"]["isError"]
        assert (await client.ask(request(2, "ping")))["result"] == {}


async def test_another_application_is_not_asked_for_one(turns, autojump_clock):
    async with open_tunnel(unasked, turns=turns) as client:
        client.connect(HOST)
        await client.ended()
        assert client.status == 501
        assert b"the address of the MCP endpoint only" in client.body
        assert not client.reset
