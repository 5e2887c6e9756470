"""A directory that is slow, fails, or has done what it does not tell, and processes that others take for ended though they live.

Time is virtual, and chance repeatable.
"""

import random
from contextlib import suppress

import pytest
import trio
from several import open_buses
from test_forwarding import ANSWER, call, make
from test_trouble import BUSES, SECONDS, Client

from mcpbus.testing import MemoryDirectory, StreamEndedError


class TroubledDirectory(MemoryDirectory):
    """Does as chance will have it, once there is trouble; and looks at who writes.

    Attributes:
        chance: Tells what happens.
        troubled: Whether anything does.
        faults: What should not have been.
    """

    def __init__(self, chance):
        super().__init__()
        self.chance = chance
        self.troubled = False
        self.faults = []
        self._epochs = {}
        self._others = {}

    async def _do(self, done, *given):
        if self.troubled and self.chance.random() < 0.2:
            await self._suffer()
            result = await done(*given)
            await self._suffer()  # it was done, and nobody knows
            return result
        return await done(*given)

    async def _suffer(self):
        trouble = self.chance.choice(["", "slow", "broken"])
        if trouble == "slow":
            await trio.sleep(self.chance.random() * 3)
        elif trouble:
            raise OSError("the directory has trouble")

    def _check(self, ownership):
        kept = super()._check(ownership)
        if ownership.epoch < self._epochs.get(ownership.name, 0):
            self.faults.append(f"{ownership} wrote after epoch {self._epochs[ownership.name]}")
        self._epochs[ownership.name] = ownership.epoch
        return kept

    async def update(self, *given):
        await self._do(super().update, *given)

    async def hold(self, *given):
        await self._do(super().hold, *given)

    async def take(self, *given):
        await self._do(super().take, *given)

    async def look(self, *given):
        return await self._do(super().look, *given)

    async def claim(self, *given):
        return await self._do(super().claim, *given)

    async def pause(self, home, seconds):
        """Have a process be taken for ended for a while, though it serves who asks it."""
        if home in self._living:
            self.lapse(home)
            await self.cut()
            await trio.sleep(seconds)
            self.renew(home)


class Patient(Client):
    """A client that tells its answer again and again: who takes it may not know yet that it has lost the session."""

    async def ask(self, session, _word):
        asking = call(self.anywhere(session), "ask")
        with suppress(StreamEndedError):
            message = await asking.message()
            while "method" in message and not asking.over:
                answered = await self.anywhere(session).answer(message["id"], ANSWER).ended()
                assert answered.status in {202, 503}, answered
                with trio.move_on_after(3):
                    await asking.ended()
        await self.check(asking, None)


@pytest.mark.parametrize("seed", range(3))
async def test_every_session_is_somebodys_whatever_the_directory_does(seed, autojump_clock):
    chance = random.Random(seed)
    directory = TroubledDirectory(chance)
    async with open_buses(make, BUSES, directory=directory) as (buses, probes):
        clients = [Patient(chance, probes) for _ in range(6)]

        async def trouble():
            await trio.sleep(1)  # all sessions have begun
            directory.troubled = True
            while trio.current_time() < SECONDS:
                await trio.sleep(2 * chance.random())
                if chance.random() < 0.5:
                    await directory.cut()
                else:
                    bus = chance.choice(buses)
                    nursery.start_soon(directory.pause, bus.node.home, 4 * chance.random())
            directory.troubled = False

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            for client in clients:
                nursery.start_soon(client.run)
        await trio.sleep(10)  # all that waited to be written is written, and who has lost a session knows
        assert not directory.faults
        assert sum(client.ended for client in clients) > 60
        for client in clients:
            assert (await client.anywhere(client.session).request("ping", id="last").ended()).status == 200
        owners = {name: kept.ownership.home for name, kept in directory._kept.items()}
        assert {name: bus.node.home for bus in buses for name in bus.sessions} == owners
        assert sum(len(bus.sessions) for bus in buses) == len(clients) == len(owners)
