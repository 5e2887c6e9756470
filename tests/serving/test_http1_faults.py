"""What goes wrong on a connection of the lane: bodies nobody reads, bytes that are no request, clients that leave."""

import pytest
import trio
from lanes import LIMIT, drip, get, open_lane, post
from trio.testing import wait_all_tasks_blocked

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget

CHUNKED = b"transfer-encoding: chunked"
CONTINUE = b"expect: 100-continue"


# -- bodies that nobody reads, and clients that wait before they send one ----------------------------------------------


async def test_an_early_answer_comes_before_the_body_and_the_connection_goes_on(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        data = post(b"x" * 100_000, path="/")
        await client.say(data[:1000])
        status, fields, _ = await client.answer()
        assert status == 200
        assert "connection" not in fields
        await client.say(data[1000:] + post(b"next"))
        assert (await client.answer())[2] == b"next"


@pytest.mark.parametrize("in_chunks", [False, True])
async def test_an_unread_body_is_thrown_away_up_to_a_cap(in_chunks, autojump_clock):
    async with open_lane(unread_body_bytes=50_000) as house:
        client = await house.connect()
        if in_chunks:
            await client.say(b"POST / HTTP/1.1\r\nhost: x\r\n%b\r\n\r\nFFFFFF\r\n" % CHUNKED)
        else:
            await client.say(post(b"x" * 10_000_000, path="/")[:1000])
        status, fields, _ = await client.answer()
        assert status == 200
        assert fields.get("connection") == (None if in_chunks else "close")
        await drip(client, b"x" * 200_000, step=1000, seconds=0)
        assert client.over.is_set()


async def test_an_unread_body_is_not_waited_for_long(autojump_clock):
    async with open_lane(unread_body_timeout=5) as house:
        client = await house.connect()
        await client.say(post(b"x" * 100_000, path="/")[:1000])
        assert (await client.answer())[0] == 200
        start = trio.current_time()
        await client.ended()
        assert 5 <= trio.current_time() - start < 6


@pytest.mark.parametrize("in_chunks", [False, True])
async def test_a_body_that_is_too_long_is_not_read_to_its_end(in_chunks, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        body = b"x" * (LIMIT + 1)
        if in_chunks:
            await client.say(
                b"POST /echo HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n%x\r\n%b" % (CHUNKED, LIMIT + 1, body)
            )
            assert (await client.answer())[0] == 413
            await client.say(b"\r\n0\r\n\r\n")
        else:
            await client.say(post(body))
            assert (await client.answer())[0] == 413
        await client.say(post(b"next"))
        assert (await client.answer())[2] == b"next"


async def test_a_client_that_asks_is_told_to_go_on(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        head, _, body = post(b"hello", CONTINUE).rpartition(b"\r\n\r\n")
        await client.say(head + b"\r\n\r\n")
        assert (await client.answer())[0] == 100
        await client.say(body)
        assert (await client.answer())[2] == b"hello"
        # One that does not wait is not told.
        await client.say(post(b"hello", CONTINUE))
        assert (await client.answer())[0] == 200


async def test_a_client_that_asks_is_refused_instead_and_may_keep_its_body(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        head, _, _ = post(b"hello", CONTINUE, path="/").rpartition(b"\r\n\r\n")
        await client.say(head + b"\r\n\r\n")
        status, fields, _ = await client.answer()
        # Whether it sends the body is not known, and so not where the next request begins.
        assert (status, fields["connection"]) == (200, "close")
        await client.ended()


# -- what is no request ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\nhost: x\n\n", 400),
        (post(b"x", b"content-length: 1"), 400),
        (post(b"x", CHUNKED), 400),
        (b"FETCH / HTTP/1.1\r\nhost: x\r\n\r\n", 501),
        (get("/" + "a" * 9000), 414),
        (get("/", b"x: " + b"a" * 40_000), 431),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\n%b\r\n\r\nnope\r\n" % CHUNKED, 400),
    ],
)
async def test_what_is_no_request_is_answered_and_ends_the_connection(data, status, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(post(b"first") + data + get("/smuggled"))
        assert (await client.answer())[2] == b"first"
        answered, fields, body = await client.answer()
        assert (answered, fields["connection"]) == (status, "close")
        assert fields["content-type"].startswith("text/plain")
        assert body.endswith(b"\n")
        await client.leave()
        await client.over.wait()
        assert house.endpoint.bodies == [b"first"]


async def test_what_comes_after_a_fault_is_read_for_a_while_so_that_the_client_sees_it(autojump_clock):
    async with open_lane(unread_body_timeout=5) as house:
        client = await house.connect()
        await client.say(b"nonsense\r\n\r\n")
        for _ in range(4):
            await trio.sleep(1)
            await client.say(b"x" * 1000)  # would raise if the connection had been closed
        assert (await client.answer())[0] == 400
        await client.ended()


# -- clients that go away ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/wait", "/stream"])
async def test_a_client_that_goes_away_is_noticed_while_it_is_served(path, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get(path))
        await house.endpoint.waiting.wait()
        await client.leave()
        await client.over.wait()
        assert house.endpoint.gone == [path]


async def test_a_write_to_a_client_that_has_left_raises(autojump_clock):
    """A handler that only writes would go on for nobody."""
    async with open_lane() as house:
        written = []

        async def recite(http):
            await http.start_stream([])
            try:
                for number in range(10):
                    await http.write(b"line", more=True)
                    written.append(number)
                    await trio.sleep(1)
            except trio.BrokenResourceError:
                written.append("raised")

        house.endpoint.recite = recite
        client = await house.connect()
        await client.say(get("/recite"))
        await trio.sleep(2.5)
        await client.leave()
        await client.over.wait()
        assert written == [0, 1, 2, "raised"]


async def test_it_is_noticed_with_further_requests_before_the_end_too(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get("/wait"))
        await house.endpoint.waiting.wait()
        await client.say(post(b"unserved"))
        await wait_all_tasks_blocked()
        await client.leave()
        await client.over.wait()
        assert (house.endpoint.gone, house.endpoint.bodies) == (["/wait"], [])


async def test_reading_ahead_is_bounded(autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get("/wait"))
        await house.endpoint.waiting.wait()
        for _ in range(100):
            await client.say(post(b"x" * 500) * 10)
            await wait_all_tasks_blocked()
        assert client.connection.wire.requests.waiting < 200 * 1024
        house.endpoint.go_on.set()
        for _ in range(1001):
            assert (await client.answer())[0] == 200


@pytest.mark.parametrize("end", [10, -2])
async def test_a_request_that_breaks_off_is_not_served(end, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(post(b"hello")[:end])
        await wait_all_tasks_blocked()
        await client.leave()
        await client.over.wait()
        assert house.endpoint.bodies == []


# -- the application's mistakes ----------------------------------------------------------------------------------------


async def test_an_application_that_raises_is_answered_500_and_logged(caplog, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get("/fail"))
        status, fields, body = await client.answer()
        assert (status, fields["connection"]) == (500, "close")
        assert b"mistake" not in body
        await client.leave()
        await client.over.wait()
    assert "a mistake of the application's" in caplog.text


@pytest.mark.parametrize("path", ["/fail_later", "/silent"])
async def test_an_answer_that_does_not_come_to_its_end_is_cut_off(path, caplog, autojump_clock):
    async with open_lane() as house:
        client = await house.connect()
        await client.say(get(path) + post(b"next"))
        assert not (await client.all()).endswith(b"0\r\n\r\n")
        assert house.endpoint.bodies == []


# -- bodies that do not end --------------------------------------------------------------------------------------------


async def test_the_longest_unfinished_body_is_given_up_when_there_are_too_many(autojump_clock):
    async with open_lane() as house:
        house.endpoint.is_head_valid = lambda _: False  # so that a task waits for the body
        budget = house.endpoint.budget = MemoryBudget(1000, LimitMonitor())
        clients = [await house.connect() for _ in range(3)]
        for client, size in zip(clients, (300, 600, 200), strict=True):
            await client.say(b"POST /echo HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n" % CHUNKED)
            await client.say(b"%x\r\n%b\r\n" % (size, b"x" * size))
            await trio.sleep(1)
        assert (await clients[1].answer())[0] == 503
        for client in (clients[0], clients[2]):
            await client.say(b"0\r\n\r\n")
            assert (await client.answer())[0] == 200
        # The rest of what was given up is read, and what comes after it is a request like any other.
        await clients[1].say(b"0\r\n\r\n" + get("/"))
        assert (await clients[1].answer())[2] == b"root"
        assert budget.held == 0
