"""One connection of the lane: requests in order, answers in order, and every wait with an end. In memory, on virtual time."""

import pytest
import trio
from lanes import drip, get, open_lane, post
from trio.testing import wait_all_tasks_blocked

from mcpbus import Limits

CHUNKED = b"transfer-encoding: chunked"


async def test_a_connection_carries_one_request_after_the_other(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        for body in (b"one", b"", b"three"):
            await client.say(post(body))
            status, fields, answer = await client.answer()
            assert (status, answer) == (200, body)
            assert fields["content-type"] == "text/plain"
            assert "connection" not in fields
            assert "date" in fields


async def test_requests_sent_in_one_go_are_answered_in_order(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(post(b"1") + get("/wait") + post(b"2") + get("/stream") + post(b"3"))
        assert (await client.answer())[2] == b"1"
        await house.endpoint.waiting.wait()
        await wait_all_tasks_blocked()
        assert client.data == b""
        assert len(house.endpoint.heads) == 2  # the others wait their turn
        house.endpoint.go_on.set()
        assert [(await client.answer())[2] for _ in range(4)] == [b"waited", b"2", b"firstlast", b"3"]


async def test_a_body_in_chunks_is_read(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        head = b"POST /echo HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n" % CHUNKED
        for piece in (
            head,
            b"3\r\nab",
            b"c\r\n2;x=",
            b"y\r\nde\r\n0\r\ntrailer: t\r\n",
            b"\r\n" + post(b"next"),
        ):
            await client.say(piece)
            await wait_all_tasks_blocked()
        assert (await client.answer())[2] == b"abcde"
        assert (await client.answer())[2] == b"next"


async def test_a_stream_goes_out_in_chunks_its_head_with_the_first(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get("/stream"))
        assert b"first" in await client.stream.receive_some()  # one write
        await wait_all_tasks_blocked()
        house.endpoint.go_on.set()
        assert await client.until(b"0\r\n\r\n") == b"4\r\nlast\r\n"
        await client.say(post(b"next"))
        assert (await client.answer())[2] == b"next"


async def test_head_gets_the_head_of_the_answer(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get("/").replace(b"GET", b"HEAD") + post(b"next"))
        status, fields, _ = await client.answer(bodiless=True)
        assert (status, fields["content-length"]) == (200, "4")
        assert (await client.answer())[2] == b"next"


async def test_an_answer_without_a_body_has_no_length(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get("/empty") + post(b"next"))
        status, fields, _ = await client.answer()
        assert status == 204
        assert "content-length" not in fields
        assert (await client.answer())[2] == b"next"


async def test_what_cross_origin_pages_need_is_added(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        house.endpoint.go_on.set()
        for path in ("/", "/stream"):
            await client.say(get(path, b"origin: http://x"))
            assert (await client.answer())[1]["vary"] == "origin"


# -- the end of a connection -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_bytes", "connection"),
    [
        (post(b"x", b"connection: close"), "close"),
        (post(b"x", version="1.0"), "close"),
        (post(b"x", b"connection: keep-alive", version="1.0"), "keep-alive"),
    ],
)
async def test_the_client_says_whether_the_connection_goes_on(request_bytes, connection, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(request_bytes)
        status, fields, body = await client.answer()
        assert (status, fields["connection"], body) == (200, connection, b"x")
        if connection == "close":
            await client.ended()
        else:
            await client.say(request_bytes)
            assert (await client.answer())[0] == 200


async def test_a_stream_to_http_1_0_ends_with_the_connection(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        house.endpoint.go_on.set()
        await client.say(get("/stream", b"connection: keep-alive", version="1.0"))
        status, fields, body = await client.answer()
        assert (status, fields["connection"], body) == (200, "close", b"firstlast")
        assert "transfer-encoding" not in fields


async def test_an_idle_connection_is_closed_after_a_while(autojump_clock):
    async with open_lane(keep_alive_timeout=75) as house:
        client = await house.connect()
        await trio.sleep(70)
        await client.say(post(b"x"))
        await client.answer()
        await trio.sleep(70)
        await client.say(post(b"x"))
        await client.answer()
        start = trio.current_time()
        await client.ended()
        assert 75 <= trio.current_time() - start < 76.1


async def test_a_request_is_not_idle_however_long_it_takes(autojump_clock):
    async with open_lane(keep_alive_timeout=75) as house:
        client = await house.connect()
        await client.say(get("/stream"))
        await client.until(b"first")
        await trio.sleep(1000)
        house.endpoint.go_on.set()
        await client.until(b"last")


async def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(autojump_clock):
    async with open_lane(head_timeout=10) as house:
        client = await house.connect()
        start = trio.current_time()
        data = post(b"x" * 100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, client, data)
            status, fields, body = await client.answer()
            nursery.cancel_scope.cancel()
        assert (status, fields["connection"]) == (408, "close")
        assert b"in time" in body
        assert 10 <= trio.current_time() - start < 12
        await client.ended()
        assert house.endpoint.heads == []


async def test_a_body_may_take_its_time_as_long_as_it_comes(autojump_clock):
    limits = Limits(body_timeout=30, body_bytes_per_second=1 / 30)
    async with open_lane(limits=limits) as house:
        client = await house.connect()
        head, _, body = post(b"x" * 100).rpartition(b"\r\n\r\n")
        await client.say(head + b"\r\n\r\n")
        await drip(client, body, seconds=29)
        assert (await client.answer())[2] == body
        start = trio.current_time()
        await client.say(post(b"x" * 100)[:-1])
        assert (await client.answer())[0] == 408
        assert 30 <= trio.current_time() - start < 32
        await client.ended()


CHUNKS = post(None, CHUNKED) + b"1\r\nx\r\n" * 1000
# It begins fast, is so short that it is waited for in turns, or is neither.
SLOW = [(post(b"x" * 1000), 900), (post(b"x" * 1000), 0), (post(b"x" * 200_000), 0), (CHUNKS, 0)]


@pytest.mark.parametrize(("data", "first"), SLOW, ids=["fast at first", "short", "long", "in chunks"])
async def test_a_body_that_trickles_is_not_waited_for_for_ever(data, first, autojump_clock):
    async with open_lane(limits=Limits(body_timeout=30, body_bytes_per_second=100)) as house:
        client = await house.connect()
        start = data.index(b"\r\n\r\n") + 4 + first
        await client.say(data[:start])
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, client, data[start:])
            status, fields, body = await client.answer()
            nursery.cancel_scope.cancel()
        assert (status, fields["connection"], body) == (408, "close", b"the request did not come in time\n")
        assert 30 <= trio.current_time() - begun < 33
        await client.ended()
        assert not house.endpoint.bodies


@pytest.mark.parametrize(
    "data",
    [post(b"x" * 900), post(None, CHUNKED) + b"2d\r\n%b\r\n" % bytes(45) * 20 + b"0\r\n\r\n"],
    ids=["sized", "in chunks"],
)
async def test_a_body_that_is_slow_but_not_too_slow_may_take_as_long_as_it_takes(data, autojump_clock):
    async with open_lane(limits=Limits(body_timeout=30, body_bytes_per_second=10)) as house:
        client = await house.connect()
        end, begun = data.index(b"\r\n\r\n") + 4, trio.current_time()
        await client.say(data[:end])
        await drip(client, data[end:], step=50, seconds=4.9)
        status, _, body = await client.answer()
        assert (status, len(body)) == (200, 900)
        assert trio.current_time() - begun > 80


# -- a process that was stopped ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 10, -1])
async def test_what_is_there_after_the_process_was_stopped_is_served(at, autojump_clock):
    """Nobody has looked for longer than any deadline; who looks first then, is chance."""
    async with open_lane() as house:
        for _ in range(20):
            client = await house.connect()
            data = post(b"hello")
            if at:
                await client.say(data[:at])
                await wait_all_tasks_blocked()
            await client.say(data[at:])
            autojump_clock.jump(100)
            assert (await client.answer())[2] == b"hello"


@pytest.mark.parametrize("at", [0, 10, -1])
async def test_who_has_said_too_little_when_it_was_stopped_is_not_waited_for(at, autojump_clock):
    async with open_lane() as house:
        for _ in range(20):
            client = await house.connect()
            data = post(b"hello" * 10)
            if at:
                await client.say(data[:at])
                await wait_all_tasks_blocked()
            autojump_clock.jump(100)
            begun = trio.current_time()
            if at:
                assert (await client.answer())[0] == 408
            else:
                await client.ended()
            assert trio.current_time() - begun < 2


# -- who speaks something else -----------------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


async def test_http2_is_for_somebody_else_from_its_first_byte_on(autojump_clock):
    data = PREFACE + b"\0\0\0\4\0"
    async with open_lane() as house:
        client = await house.connect()
        await client.say(data)
        await client.over.wait()
        assert client.rest == data
        assert house.endpoint.heads == []


async def test_http2_may_not_come_after_requests(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(post(b"x") + PREFACE)
        assert (await client.answer())[0] == 200
        assert (await client.answer())[0] == 400


# -- a shutdown --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"POST /ec", post(b"x")])
async def test_an_idle_connection_is_closed_at_once(said, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        if said:
            await client.say(said)
            await wait_all_tasks_blocked()
            if said.endswith(b"x"):
                await client.answer()
        start = trio.current_time()
        client.connection.retire()
        await client.ended()
        assert trio.current_time() == start


@pytest.mark.parametrize("said", [b"", b"POST /ec", post(b"x")])
async def test_one_that_lingers_is_closed_once_it_has_been_idle_for_long_enough(said, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await trio.sleep(10)
        if said:
            await client.say(said)
            await wait_all_tasks_blocked()
            if said.endswith(b"x"):
                await client.answer()
        start = trio.current_time()
        await trio.sleep(1)
        left = client.connection.linger(3)
        assert left == (2 if said else 0)
        await client.ended()
        assert trio.current_time() - start == pytest.approx(1 + left, abs=0.1)


async def test_the_next_request_of_one_that_lingers_is_its_last(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(post(b"first"))
        assert (await client.answer())[1].get("connection") is None
        client.connection.linger(3)
        await trio.sleep(2)
        await client.say(post(b"second"))
        status, fields, body = await client.answer()
        assert (status, fields["connection"], body) == (200, "close", b"second")
        await client.ended()


async def test_a_request_under_way_is_the_last_one_of_one_that_lingers(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get("/wait"))
        await house.endpoint.waiting.wait()
        assert client.connection.linger(3) == 0
        await trio.sleep(100)
        house.endpoint.go_on.set()
        status, fields, body = await client.answer()
        assert (status, fields["connection"], body) == (200, "close", b"waited")
        await client.ended()


@pytest.mark.parametrize("path", ["/wait", "/stream"])
async def test_a_request_under_way_is_the_last_one(path, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get(path))
        await house.endpoint.waiting.wait()
        client.connection.retire()
        await trio.sleep(100)
        house.endpoint.go_on.set()
        status, fields, body = await client.answer()
        assert status == 200
        assert body in {b"waited", b"firstlast"}
        assert fields.get("connection") == ("close" if path == "/wait" else None)
        await client.ended()


async def test_a_body_under_way_is_the_last_one(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(post(b"hello")[:-1])
        await wait_all_tasks_blocked()
        client.connection.retire()
        await client.say(b"o")
        status, fields, body = await client.answer()
        assert (status, fields["connection"], body) == (200, "close", b"hello")
        await client.ended()


async def test_a_request_that_comes_at_the_moment_of_the_end_is_not_half_served(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(post(b"hello"))  # it lies in the stream; the connection's task has not run yet
        client.connection.retire()
        await client.ended()
        assert house.endpoint.heads == []
