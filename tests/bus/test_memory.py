"""How much is kept in memory for clients: each kind of it counts, those that hold the most go, and in the end all is given back."""

import json
from contextlib import asynccontextmanager

import trio
import trio.testing
from staging import CLAIM, staged, tool

from mcpbus import Limits, Reason, Server
from mcpbus.testing import open_bus, settle
from mcpbus.transport.channel import Channel


def speaker():
    server = Server("s", version="1")

    @server.tool
    async def large(size: int) -> str:
        return "x" * size

    return server


class Remote:
    """A client on a shared channel that comes over a network.

    Attributes:
        reads: Whether it takes what is said.
        got: What it has taken.
        took_all: What the channel's writer said in the end; None until then.
    """

    def __init__(self, channel, *, reads=True):
        self.channel = channel
        self.reads = reads
        self.got = []
        self.took_all = None

    async def run(self):
        with self.channel:
            self.took_all = await self.channel.write(self._take)

    async def _take(self, lines):
        if not self.reads:
            await trio.sleep_forever()
        self.got += lines

    async def call(self, request_id, size):
        params = {"name": "large", "arguments": {"size": size}, "_meta": CLAIM}
        body = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
        await self.channel.receive(json.dumps(body).encode())
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def remote(bus, **options):
    client = Remote(Channel(bus, None), **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        await trio.testing.wait_all_tasks_blocked()
        yield client
        nursery.cancel_scope.cancel()


async def test_what_waits_on_a_stream_counts_until_it_is_written(autojump_clock):
    async with staged() as stage, stage.wire("2025-11-25") as wire:
        wire.stall()
        for n in range(3):
            await wire.say("tools/call", tool(name="quick"), n)
        await settle(stage.bus)
        assert stage.bus.statistics().held_bytes > 3 * 128
        wire.resume()
        await settle(stage.bus)
        assert stage.bus.statistics().held_bytes == 0
        assert len(wire.got) == 3


async def test_the_stream_for_which_the_most_waits_is_ended_and_no_other(autojump_clock):
    async with (
        open_bus(speaker(), limits=Limits(memory_bytes=100_000)) as bus,
        remote(bus, reads=False) as stalled,
        remote(bus) as reading,
        remote(bus, reads=False) as small,
    ):
        await small.call(1, 10)
        await stalled.call(1, 30_000)
        await stalled.call(2, 30_000)
        assert stalled.took_all is None
        await stalled.call(3, 30_000)
        assert stalled.took_all is False
        assert (reading.took_all, small.took_all) == (None, None)
        await reading.call(1, 30_000)
        assert len(reading.got) == 1
        now = bus.statistics()
        assert now.limits_reached == {"memory_bytes": 1}
        assert {reason: n for reason, n in now.discarded.items() if n} == {Reason.OVERFLOW: 2, Reason.LOST: 1}
        assert 0 < now.held_bytes < 1_000, "what the small one has not read"
    assert bus.budget.held == 0


async def test_what_is_ended_as_its_writer_takes_it_is_not_written(autojump_clock):
    async with open_bus(speaker(), limits=Limits(memory_bytes=100_000)) as bus:
        client = Remote(Channel(bus, None))
        await client.call(1, 40_000)
        await client.call(2, 40_000)
        await client.run()
        assert client.got == []
        now = bus.statistics()
        assert (now.discarded[Reason.LOST], now.held_bytes) == (2, 0)
