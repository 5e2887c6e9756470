"""Exchanges have the recorded outcome under an ASGI host on asyncio, too: the one that they have under a host on trio."""

import asyncio
import math
from collections import defaultdict
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from mcpbus.asyncio import AsyncioApp, guest, to_asyncio, to_trio
from tests.exchanges import outcomes
from tests.exchanges.clients import over_asgi
from tests.exchanges.differences import differing, flatten
from tests.exchanges.house import House, open_house
from tests.exchanges.player import play
from tests.exchanges.steps import Pass
from tests.exchanges.tables import EXCHANGES, ways_of

RECORDS = outcomes.read()
TIMED = ("call: a long nap", "call at a server that keeps events: a long nap", "slow names: a GET stream")
"""Exchanges in which handlers take their time."""


def _cases():
    """Yield each place, a way, and the exchanges there in which no time passes: asyncio measures some of it by a clock of its own."""
    found = defaultdict(list)
    for exchange in EXCHANGES.values():
        timed = any(isinstance(step, Pass) for step in exchange.steps) or exchange.name.startswith(TIMED)
        for way in ways_of(exchange):
            if not timed and way.transport == "asgi":
                found[exchange.place, way].append(exchange)
    for (place, way), exchanges in found.items():
        yield pytest.param(place, way, exchanges, id=f"{place}, {way.manner}")


class _LentBus:
    """What opens the house of a place, in place of the application of a server."""

    def __init__(self, place):
        self._place = place
        self.house = None

    @asynccontextmanager
    async def lifespan(self):
        async with open_house(self._place) as self.house:
            yield

    @property
    def attached(self):
        return self.house.app

    async def __call__(self, *messages):
        await self.house.app(*messages)


@attrs.frozen
class _Doors:
    house: House
    app: AsyncioApp

    async def sender(self, way):
        return partial(over_asgi, self._across, manner=way.manner)

    async def _across(self, scope, receive, send):
        await to_asyncio(self.app, scope, partial(to_trio, receive), partial(to_trio, send))


@pytest.mark.parametrize(("place", "way", "exchanges"), [*_cases()])
def test_the_outcome_is_that_of_a_host_on_trio(place, way, exchanges, monkeypatch):
    clock = trio.testing.MockClock()
    monkeypatch.setattr(
        guest.trio.lowlevel, "start_guest_run", partial(trio.lowlevel.start_guest_run, clock=clock)
    )

    async def main():
        lent = _LentBus(place)
        app = AsyncioApp(lent)
        async with app.lifespan():
            doors = _Doors(lent.house, app)
            jumping = asyncio.create_task(to_trio(_jump, clock, asyncio.get_running_loop()))
            try:
                return {each.name: flatten(await to_trio(play, each, doors, way)) for each in exchanges}
            finally:
                jumping.cancel()

    found = asyncio.run(main())
    expected = {each.name: _expected(each, way) for each in exchanges}
    differences = {name: differing(expected[name], outcome) for name, outcome in found.items()}
    assert {name: parts for name, parts in differences.items() if parts} == {}


async def _jump(clock, loop):
    """Have the clock jump to the next deadline whenever neither loop has anything to do.

    What asyncio has given to trio is seen in a later turn only, so both loops have to be idle for some turns.
    """
    idle = 0
    while True:
        await trio.testing.wait_all_tasks_blocked()
        idle = 0 if loop._ready else idle + 1
        seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if idle == 3 and 0 < seconds < math.inf:
            clock.jump(seconds)
            idle = 0
        await trio.lowlevel.checkpoint()


def _expected(exchange, way):
    record = RECORDS[exchange.name]
    return {**record["outcome"], **record["except"].get(way.name, {})}
