"""Bodies that come slowly: what has come of them is counted, and the longest is given up when there is too much."""

import json
from contextlib import suppress

import pytest
import trio
from asgi_calls import encoded
from channels import house, initialize, sse

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.limits import MinDataRate
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.protocol.principals import LOCAL
from mcpbus.transports.request_body import read_unfinished

FIELDS = {
    "host": "localhost",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


class Upload:
    """A POST over ASGI, whose body comes as the test says.

    Attributes:
        sent: What the application sent.
    """

    def __init__(self, app, path="/mcp", query=""):
        self.sent = []
        self._app = app
        self._scope = {"type": "http", "method": "POST", "path": path, "headers": encoded(FIELDS)}
        self._scope["query_string"] = query.encode()
        self._send, self._receive = trio.open_memory_channel(10_000)

    async def run(self):
        async def send(piece):
            self.sent.append(piece)

        await self._app(self._scope, self._receive.receive, send)

    def say(self, piece, *, more=True):
        self._send.send_nowait({"type": "http.request", "body": piece, "more_body": more})

    @property
    def status(self):
        return self.sent[0]["status"] if self.sent else None


async def test_the_longest_unfinished_body_is_given_up_and_the_others_are_served(autojump_clock):
    async with house(limits={"memory_bytes": 100_000}) as home, trio.open_nursery() as nursery:
        long, short = Upload(home.app), Upload(home.app)
        for upload in (long, short):
            nursery.start_soon(upload.run)
        short.say(json.dumps(initialize("2025-11-25")).encode() + b" " * 20_000)
        for _ in range(9):
            long.say(b" " * 10_000)
        await trio.sleep(1)
        assert (long.status, short.status) == (503, None)
        assert "unfinished" in json.loads(long.sent[1]["body"])["error"]["message"]
        short.say(b"", more=False)
        await trio.sleep(1)
        assert short.status == 200
        assert home.bus.statistics().limits_reached == {"memory_bytes": 1}


async def test_a_message_over_http_sse_is_given_up_likewise(autojump_clock):
    async with house(limits={"memory_bytes": 100_000}) as home, sse(home.probe, "2025-11-25") as client:
        path, _, query = client.stream.endpoint.partition("?")
        upload = Upload(home.app, path, query)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(upload.run)
            for _ in range(11):
                upload.say(b" " * 10_000)
            await trio.sleep(1)
            assert upload.status == 503
        assert "result" in await client.ask({"jsonrpc": "2.0", "id": 1, "method": "ping"})


@pytest.mark.parametrize("pieces", [1, 100_000])
async def test_what_has_come_counts_whatever_its_pieces(pieces, autojump_clock):
    async with house() as home, trio.open_nursery() as nursery:
        upload = Upload(home.app)
        upload._send, upload._receive = trio.open_memory_channel(pieces + 1)
        nursery.start_soon(upload.run)
        for _ in range(pieces):
            upload.say(b" " * (100_000 // pieces))
        await trio.sleep(1)
        assert home.bus.statistics().held_bytes == 100_000
        upload.say(b"", more=False)
        await trio.sleep(1)
        assert (upload.status, home.bus.statistics().held_bytes) == (400, 0)


@pytest.mark.parametrize(("rest", "whole"), [(b"", b"12345678"), (b"9", None)])
async def test_a_body_that_is_as_long_as_it_may_be_is_read_to_its_end(rest, whole):
    budget = MemoryBudget(10**9, LimitMonitor())

    async def come(_until):
        await trio.lowlevel.checkpoint()
        return rest, True

    read = await read_unfinished(
        b"12345678", come, limit=8, rate=MinDataRate(1, 1), until=0, budget=budget, peer=LOCAL
    )
    assert (read, budget.held) == (whole, 0)


@pytest.mark.parametrize("failure", [trio.BrokenResourceError, trio.Cancelled], ids=["broken", "cancelled"])
async def test_a_body_that_is_not_read_to_its_end_is_not_kept(failure):
    budget, scope = MemoryBudget(10**9, LimitMonitor()), trio.CancelScope()

    async def fail(_until):
        assert budget.held == 4
        if failure is trio.Cancelled:
            scope.cancel()
        await trio.lowlevel.checkpoint()
        raise failure

    with suppress(trio.BrokenResourceError), scope:
        await read_unfinished(
            b"half", fail, limit=8, rate=MinDataRate(1, 1), until=0, budget=budget, peer=LOCAL
        )
        raise AssertionError
    assert (budget.held, scope.cancelled_caught) == (0, failure is trio.Cancelled)


async def test_whoever_brings_much_leaves_everybody_else_a_turn_before_the_next_who_does():
    budget, turn, served = MemoryBudget(10**9, LimitMonitor()), 0, []

    async def nothing_more(_until):
        raise AssertionError

    async def bring():
        whole = await read_unfinished(
            b" " * LARGE_BYTES,
            nothing_more,
            limit=LARGE_BYTES,
            rate=MinDataRate(1, 1),
            until=0,
            budget=budget,
            peer=LOCAL,
            ended=True,
        )
        assert len(whole) == LARGE_BYTES
        served.append(turn)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(bring)
        while len(served) < 3:
            turn += 1
            await trio.lowlevel.checkpoint()
    assert len(set(served)) == 3
