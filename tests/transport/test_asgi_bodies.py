"""How long the ASGI shell waits for the body of a request."""

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from asgi_calls import encoded
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup

from mcpbus import Limits, Server
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.testing import open_bus
from mcpbus.transports.asgi import arrived_in

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
FIELDS = {
    "host": "localhost",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}


class Request:
    """A POST whose body comes as a test says; another task reads it from the connection, as in a server."""

    def __init__(self):
        self.said, self._arrives = trio.open_memory_channel(1000)
        self._read, self._receives = trio.open_memory_channel(1000)
        self.sent = []
        self.over = trio.Event()

    def say_at_once(self, body, *, more=True):
        self._read.send_nowait({"type": "http.request", "body": body, "more_body": more})

    async def end(self):
        self.say_at_once(b"", more=False)

    def leave(self):
        self._read.send_nowait({"type": "http.disconnect"})

    def say(self, body, *, more=True):
        self.said.send_nowait({"type": "http.request", "body": body, "more_body": more})

    async def run(self, app, *, hidden=False):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._relay)
            scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": encoded(FIELDS)}
            await app(scope, self._receive if hidden else self._receives.receive, self._send)
            nursery.cancel_scope.cancel()
        self.over.set()

    async def _relay(self):
        async for message in self._arrives:
            self._read.send_nowait(message)

    async def _receive(self):
        return await self._receives.receive()

    async def _send(self, message):
        self.sent.append(message)

    async def status(self):
        await self.over.wait()
        return self.sent[0]["status"]


@asynccontextmanager
async def opened(rate=10):
    limits = Limits(body_timeout=30, body_bytes_per_second=rate)
    async with open_bus(Server("bodies", version="1"), limits=limits) as bus, trio.open_nursery() as nursery:
        yield bus, nursery


@asynccontextmanager
async def requested(rate=10):
    async with opened(rate) as (bus, nursery):
        request = Request()
        nursery.start_soon(request.run, bus.asgi(sessions="stateless"))
        await trio.testing.wait_all_tasks_blocked()
        request.bus = bus
        yield request


@pytest.mark.parametrize("said", [b"", PING[:-1]])
async def test_a_body_that_does_not_come_to_its_end_is_not_waited_for(said, autojump_clock):
    async with requested() as request:
        if said:
            request.say(said)
        assert await request.status() == 408
        assert b"did not come in time" in request.sent[1]["body"]
        assert 30 <= trio.current_time() < 31


@pytest.mark.parametrize(("pause", "rate"), [(1, 10), (0.09, 500)])
async def test_a_body_that_trickles_is_not_waited_for_for_ever(pause, rate, autojump_clock):
    async with requested(rate) as request:
        while not request.over.is_set() and trio.current_time() < 60:
            request.say(b" ")
            await trio.sleep(pause)
        assert await request.status() == 408
        assert 30 <= trio.current_time() < 36


async def test_a_body_that_is_slow_but_not_too_slow_may_take_as_long_as_it_takes(autojump_clock):
    async with requested() as request:
        for _ in range(20):
            request.say(b" " * 50)
            await trio.sleep(4.9)
        request.say(PING, more=False)
        assert await request.status() == 200


@pytest.mark.parametrize(("seconds", "status"), [(5, 200), (7, 408)])
async def test_the_beginning_of_a_body_gives_it_time_for_its_end(seconds, status, autojump_clock):
    async with requested() as request:
        await trio.sleep(29)
        request.say(b" " * 50)  # it may take five seconds, after the thirty
        await trio.sleep(seconds)
        request.say(PING, more=False)
        assert await request.status() == status


async def test_a_short_body_is_counted_only_if_it_does_not_end_with_its_second_message(autojump_clock):
    async with requested() as request:
        held = []
        for piece in (PING, b" ", b" "):
            request.say(piece)
            await trio.testing.wait_all_tasks_blocked()
            held.append(request.bus.statistics().held_bytes)
        request.say(b"", more=False)
        assert await request.status() == 200
        assert held == [0, len(PING) + 1, len(PING) + 2]


@pytest.mark.parametrize("pieces", [[PING], [PING, b""], [PING[:9], PING[9:], b""]])
async def test_what_has_come_while_the_process_was_stopped_is_served(pieces, autojump_clock):
    async with requested() as request:
        for piece in pieces:
            request.say(piece, more=piece is not pieces[-1])
        autojump_clock.jump(100)
        assert await request.status() == 200


PIECES = [[PING], [PING, b""], [PING[:9], PING[9:], b""], [b"", PING], [b" " * LARGE_BYTES, PING, b""]]


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("pieces", PIECES)
async def test_a_body_that_is_there_is_served(pieces, hidden, autojump_clock):
    async with opened() as (bus, nursery):
        request = Request()
        for piece in pieces:
            request.say_at_once(piece, more=piece is not pieces[-1])
        nursery.start_soon(partial(request.run, bus.asgi(sessions="stateless"), hidden=hidden))
        assert await request.status() == 200


@pytest.mark.parametrize("hidden", [False, True])
async def test_a_body_that_is_there_in_part_is_not_waited_for(hidden, autojump_clock):
    async with opened() as (bus, nursery):
        request = Request()
        request.say_at_once(PING[:-1])
        nursery.start_soon(partial(request.run, bus.asgi(sessions="stateless"), hidden=hidden))
        assert await request.status() == 408
        assert 30 <= trio.current_time() < 31


async def test_a_client_that_has_gone_before_the_end_of_its_body_is_not_answered(autojump_clock):
    async with opened() as (bus, _nursery):
        request = Request()
        request.say_at_once(PING)
        request.leave()
        await request.run(bus.asgi(sessions="stateless"))
        assert request.sent == []


@pytest.mark.parametrize("hidden", [False, True])
async def test_what_comes_after_a_body_is_left(hidden, autojump_clock):
    async with opened() as (bus, _nursery):
        request = Request()
        request.say_at_once(PING, more=False)
        request.leave()
        await request.run(bus.asgi(sessions="stateless"), hidden=hidden)
        assert await request.status() == 200


@pytest.mark.parametrize("hidden", [False, True])
async def test_a_request_that_is_cancelled_before_it_is_read_is_not_served(hidden):
    async with opened() as (bus, _nursery):
        request = Request()
        request.say_at_once(PING, more=False)
        with trio.CancelScope() as scope:
            scope.cancel()
            await request.run(bus.asgi(sessions="stateless"), hidden=hidden)
        assert request.sent == []


async def test_a_body_whose_end_is_passed_on_a_turn_later_is_not_counted(monkeypatch, autojump_clock):
    monkeypatch.setattr("mcpbus.transports.asgi.read_unfinished", None)
    async with opened() as (bus, nursery):
        requests = [Request() for _ in range(20)]
        for request in requests:
            request.say_at_once(PING)
            nursery.start_soon(request.run, bus.asgi(sessions="stateless"))
            nursery.start_soon(request.end)
        assert [await request.status() for request in requests] == [200] * len(requests)


async def test_hypercorn_lets_applications_look_what_is_there():
    seen = []

    async def application(_scope, receive, _send, *_threads):
        seen.append(arrived_in(receive))

    async def send(_message):
        pass

    async with TaskGroup() as group:
        put = await group.spawn_app(application, Config(), {}, send)
        await put({"type": "http.disconnect"})
    assert seen[0].receive_nowait() == {"type": "http.disconnect"}
