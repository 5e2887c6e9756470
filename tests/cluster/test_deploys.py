"""One process after the other is replaced, while clients call and listen: no call is lost, and each is told everything once."""

import random

import pytest
import trio
from several import at, open_buses, quiet
from test_forwarding import call, make, text
from test_held import SAID, said

from mcpbus import Context
from mcpbus.testing import MemoryDirectory

SECONDS = 12
DRAIN_SECONDS = 10
BUSES = 5


def make_speaking():
    server = make()

    @server.tool
    async def say(ctx: Context, number: int) -> str:
        ctx.session.notify(SAID, {"number": number})
        return "said"

    return server


class Client:
    """Has numbers said to it, and hears them on its GET stream, by whatever processes serve."""

    def __init__(self, chance, probes):
        self.chance = chance
        self.probes = probes
        self.asked = 0
        self.heard = []
        self.reopened = 0

    def anywhere(self):
        return at(self.session, self.chance.choice(self.probes))

    async def run(self):
        self.session = await self.chance.choice(self.probes).initialize()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.listen)
            while trio.current_time() < SECONDS:
                self.asked += 1
                nursery.start_soon(self.ask, self.asked)
                await trio.sleep(self.chance.random())
            await trio.sleep(DRAIN_SECONDS)
            nursery.cancel_scope.cancel()

    async def ask(self, number):
        answered = await call(self.anywhere(), "say", number=number).ended(timeout=100)
        assert answered.status == 200, (answered.status, answered.body)
        assert text(answered.messages[-1]) == "said"
        if self.chance.random() < 0.3:
            counting = call(self.anywhere(), "count", token=f"t{number}")
            assert text(await counting.reply()) == "counted"
            assert len(counting.messages) == 4

    async def listen(self):
        while True:
            stream = self.anywhere().get()
            try:
                await stream.ended(timeout=1000)
            finally:
                assert stream.status in {200, None}, stream.body
                self.heard += said(stream)
            assert stream.complete
            self.reopened += 1


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_and_nothing_comes_twice(seed, autojump_clock):
    chance, directory = random.Random(seed), MemoryDirectory()
    async with open_buses(make_speaking, BUSES, directory=directory) as (buses, probes):
        serving = probes[:2]
        clients = [Client(chance, serving) for _ in range(4)]

        async def deploy():
            for old, new in zip(buses, probes[2:], strict=False):
                await trio.sleep(2 * chance.random())
                serving.append(new)
                del serving[0]
                await old.drain(DRAIN_SECONDS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(deploy)
            for client in clients:
                nursery.start_soon(client.run)
        await quiet(buses)
        for client in clients:
            assert sorted(client.heard) == list(range(1, client.asked + 1))
        assert [len(bus.sessions) for bus in buses[:-2]] == [0] * (BUSES - 2)
        assert sum(len(bus.sessions) for bus in buses) == len(clients)
        assert sum(client.reopened for client in clients) > len(clients)
        assert sum(bus.ledger.adopted for bus in buses) == sum(bus.ledger.moved for bus in buses)
