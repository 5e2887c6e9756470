"""Replicas that are killed, each a process of its own, with clients who go on at whichever is left."""

import random
from contextlib import asynccontextmanager

import h11
import trio
from wire import Served, call, message, program

from tests.engines import engine

SECONDS = 4


class Replica:
    """A process that serves.

    Attributes:
        served: What reaches it; None once it was killed.
    """

    served = None

    async def run(self, url, *, task_status):
        async with program("replicas_app.py", url, seconds=100) as self.process:
            said = b""
            while b"(Ctrl-C" not in said:
                data = await self.process.stderr.receive_some()
                assert data, said.decode()
                said += data
            self.served = Served(None, said.decode().split(" is served at ")[1].split()[0])
            task_status.started(self)
            while await self.process.stderr.receive_some():
                pass

    def kill(self):
        self.process.kill()
        self.served.close()
        self.served = None


class Client:
    """Goes on in one session at any of the replicas that live."""

    def __init__(self, chance, replicas):
        self.chance, self.replicas = chance, replicas
        self.right, self.seen, self.lost = 0, set(), 0

    @asynccontextmanager
    async def peer(self):
        living = [replica for replica in self.replicas if replica.served is not None]
        peer = await self.chance.choice(living).served.peer()
        with peer.stream.socket:  # also where the replica was killed meanwhile
            yield peer

    async def run(self, until):
        async with self.peer() as peer:
            self.session = await peer.open_session()
        number = 0
        while trio.current_time() < until:
            number += 1
            await self.ask(number)
            await trio.sleep(0.02)

    async def ask(self, number):
        text = f"{id(self)} {number}"
        try:
            async with self.peer() as peer:
                answer = await peer.exchange(call("echo", {"text": text}, id=number), self.session)
        except (
            OSError,
            trio.BrokenResourceError,
            trio.ClosedResourceError,
            AssertionError,
            h11.ProtocolError,
        ):
            return  # who was asked has been killed
        self.seen.add(answer.status)
        if answer.status != 200:
            return
        if "error" in answer.json:
            assert "whether it had an effect is not known" in answer.json["error"]["message"]
            self.lost += 1
        else:
            assert answer.json["result"]["content"][0]["text"] == text
            self.right += 1


async def test_sessions_go_on_at_others_when_replicas_are_killed():
    chance = random.Random(1)
    with engine() as redis, trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            replicas = [Replica() for _ in range(3)]
            async with trio.open_nursery() as starting:
                for replica in replicas:
                    starting.start_soon(nursery.start, replica.run, redis.url)
            clients = [Client(chance, replicas) for _ in range(8)]
            async with trio.open_nursery() as asking:
                for client in clients:
                    asking.start_soon(client.run, trio.current_time() + SECONDS)
                for victim in replicas[:2]:
                    await trio.sleep(SECONDS / 4)
                    victim.kill()
            (left,) = [replica for replica in replicas if replica.served is not None]
            peer = await left.served.peer()
            for client in clients:
                assert client.seen <= {200, 503}
                assert client.right > 10
                assert client.lost <= 2
                assert (await peer.exchange(message("ping", id=0), client.session)).status == 200
            left.kill()
            nursery.cancel_scope.cancel()
