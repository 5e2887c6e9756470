"""How long the ASGI shell waits for the body of a request."""

from contextlib import asynccontextmanager

import pytest
import trio
from asgi_calls import encoded

from mcpbus import Limits, Server
from mcpbus.testing import open_bus

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

    def say(self, body, *, more=True):
        self.said.send_nowait({"type": "http.request", "body": body, "more_body": more})

    async def run(self, app):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._relay)
            scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": encoded(FIELDS)}
            await app(scope, self._receives.receive, self._send)
            nursery.cancel_scope.cancel()
        self.over.set()

    async def _relay(self):
        async for message in self._arrives:
            self._read.send_nowait(message)

    async def _send(self, message):
        self.sent.append(message)

    async def status(self):
        await self.over.wait()
        return self.sent[0]["status"]


@asynccontextmanager
async def requested():
    limits = Limits(body_timeout=30, body_bytes_per_second=10)
    async with open_bus(Server("bodies", version="1"), limits=limits) as bus, trio.open_nursery() as nursery:
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


async def test_a_body_that_trickles_is_not_waited_for_for_ever(autojump_clock):
    async with requested() as request:
        while not request.over.is_set():
            request.say(b" ")
            await trio.sleep(1)
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
