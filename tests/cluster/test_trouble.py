"""Trouble at any moment: links are cut, processes end, and clients go on, each at any process. Time is virtual, and chance repeatable."""

import random

import pytest
import trio
from several import at, kill, open_buses
from test_forwarding import ANSWER, call, make, text

from mcpbus.testing import MemoryDirectory, StreamEndedError

LOST = "whether it had an effect is not known"
ANSWERS_ELSEWHERE = "cannot be asked: another process has its session"
SECONDS = 20
BUSES = 4


class Client:
    """Opens a session, and calls tools in it at any of the processes that live."""

    def __init__(self, chance, probes):
        self.chance = chance
        self.probes = probes
        self.ended = 0
        self.lost = 0

    def anywhere(self, session):
        return at(session, self.chance.choice(self.probes))

    async def run(self):
        session = await self.chance.choice(self.probes).initialize(capabilities={"elicitation": {}})
        self.session = session
        for number in range(1000):
            if trio.current_time() > SECONDS:
                return
            deed = self.chance.choice((self.echo, self.count, self.ask))
            await deed(session, f"{id(self)}.{number}")
            self.ended += 1
            await trio.sleep(self.chance.random() / 2)

    async def echo(self, session, word):
        await self.check(call(self.anywhere(session), "echo", text=word), word)

    async def count(self, session, _word):
        await self.check(call(self.anywhere(session), "count", token=_word), "counted")

    async def ask(self, session, _word):
        asking = call(self.anywhere(session), "ask")
        try:
            message = await asking.message()
            if "method" in message:
                answered = await self.anywhere(session).answer(message["id"], ANSWER).ended()
                assert answered.status in {202, 503}, answered
        except StreamEndedError:
            pass
        await self.check(asking, None)

    async def check(self, recording, expected):
        """A call has ended: with its own answer, or with an error that says that it was lost."""
        await recording.ended(timeout=100)
        if recording.status == 503:
            self.lost += 1
            return
        assert recording.status == 200, (recording.status, recording.body)
        reply = recording.messages[-1]
        if "error" in reply:
            assert any(why in reply["error"]["message"] for why in (LOST, ANSWERS_ELSEWHERE)), reply
            self.lost += 1
        elif expected is not None:
            assert text(reply) == expected


@pytest.mark.parametrize("seed", range(6))
async def test_every_call_ends_rightly_whatever_happens_to_links_and_processes(seed, autojump_clock):
    chance, directory = random.Random(seed), MemoryDirectory()
    async with open_buses(make, BUSES, directory=directory) as (buses, probes):
        living, asked = list(range(BUSES)), list(probes)
        clients = [Client(chance, asked) for _ in range(8)]

        async def trouble():
            while trio.current_time() < SECONDS:
                await trio.sleep(3 * chance.random())
                if chance.random() < 0.7 or len(living) == 1:
                    await directory.cut()
                else:
                    # Its own clients would lose their connections; here they ask another one from now on.
                    number = living.pop(chance.randrange(len(living)))
                    asked.remove(probes[number])
                    await kill(buses[number], directory)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            for client in clients:
                nursery.start_soon(client.run)
        assert sum(client.ended for client in clients) > 100
        assert sum(client.lost for client in clients) < sum(client.ended for client in clients) / 2
        for client in clients:
            assert (await client.anywhere(client.session).request("ping", id="last").ended()).status == 200
        assert sum(len(buses[number].sessions) for number in living) == len(clients)
