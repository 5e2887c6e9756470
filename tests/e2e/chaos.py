"""Chaos comes over several real processes: they are killed, stopped, told to end, cut off from each other, and lose their Redis.

One trouble at a time, with some time to get over it, so that nothing of what is looked for is ever excused.
"""

import os
import random
import signal
import socket
import tempfile
import time
from contextlib import suppress
from functools import partial

import trio
from chaos_books import shelf, total
from chaos_clients import Client, Figures
from wire import Served, call, program

from tests.engines import engine

LEASE = 1.0
IN_SESSIONS, WITHOUT = 16, 4
"""Clients."""


class Proxy:
    """Where a replica is found by the others: what comes is passed on, as long as links are not cut.

    Attributes:
        target: Where the replica listens. Nobody else gets that port between one and the next, since it is bound here, where nobody listens.
    """

    def __init__(self):
        self._bound = socket.socket()
        self._bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._bound.bind(("127.0.0.1", 0))
        self.target = self._bound.getsockname()[1]
        self._is_cut = False
        self._scopes = set()

    async def run(self, *, task_status):
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.place = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        task_status.started(self)
        with self._bound:
            await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, near):
        async with near:
            if self._is_cut:
                return
            try:
                far = await trio.open_tcp_stream("127.0.0.1", self.target)
            except OSError:
                return
            async with far, trio.open_nursery() as nursery:
                self._scopes.add(nursery.cancel_scope)
                nursery.start_soon(_pass_on, near, far, nursery.cancel_scope)
                await _pass_on(far, near, nursery.cancel_scope)
                self._scopes.discard(nursery.cancel_scope)

    async def cut(self, seconds):
        """End all links, and refuse others for a while."""
        self._is_cut = True
        for scope in self._scopes:
            scope.cancel()
        await trio.sleep(seconds)
        self._is_cut = False


async def _pass_on(near, far, scope):
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for data in near:
            await far.send_all(data)
    scope.cancel()


class Process:
    """One of the processes, and those that come in its place.

    Attributes:
        served: What reaches it; None while there is none.
    """

    served = None

    def __init__(self, *arguments):
        self.arguments = arguments

    async def run(self, *, task_status):
        while True:
            async with program("chaos_app.py", *self.arguments, seconds=1000) as self.process:
                said = b""
                while b"(Ctrl-C" not in said:
                    data = await self.process.stderr.receive_some()
                    assert data, said.decode()
                    said += data
                self.served = Served(None, said.decode().split(" is served at ")[1].split()[0])
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                while await self.process.stderr.receive_some():
                    pass
                self.served = None
                await self.process.wait()


class Replicas:
    """Several replicas, and the engine in which they find each other.

    Attributes:
        killed: Those that were, by their process ids.
    """

    def __init__(self, kind, number=4):
        self._kind, self._number = kind, number
        self.killed = set()

    async def run(self, *, task_status):
        with engine(self._kind) as self.engine:
            async with trio.open_nursery() as nursery:
                self.proxies, self.processes = [], []
                for _ in range(self._number):
                    self.proxies.append(await nursery.start(Proxy().run))
                for proxy in self.proxies:
                    link = f"127.0.0.1:{proxy.target}"
                    self.processes.append(Process("redis", self.engine.url, link, proxy.place))
                async with trio.open_nursery() as starting:
                    for process in self.processes:
                        starting.start_soon(nursery.start, process.run)
                task_status.started(self)
                await trio.sleep_forever()

    def served(self):
        return [process.served for process in self.processes if process.served is not None]

    def troubles(self):
        return [self.kill, self.cut, self.restart_engine, self.stop, self.end]

    async def kill(self, chance):
        self.killed.add(await self._signal(chance, signal.SIGKILL))

    async def end(self, chance):
        await self._signal(chance, signal.SIGTERM)

    async def _one(self, chance):
        """One that serves, of which there are two at least."""
        while len(self.served()) < 2:  # noqa: ASYNC110 - a process tells nobody
            await trio.sleep(0.05)
        return chance.choice([process for process in self.processes if process.served is not None])

    async def _signal(self, chance, number):
        process = await self._one(chance)
        process.served = None
        process.process.send_signal(number)
        return process.process.pid

    async def stop(self, chance):
        """Have one stand still past its lease."""
        process = await self._one(chance)
        process.process.send_signal(signal.SIGSTOP)
        await trio.sleep(2.5 * LEASE)
        process.process.send_signal(signal.SIGCONT)

    async def cut(self, chance):
        await chance.choice(self.proxies).cut(0.5)

    async def restart_engine(self, _chance):
        self.engine.kill()
        await trio.sleep(0.3)
        self.engine.start()
        await trio.sleep(2 * LEASE)  # until all have put back what they have


class Workers:
    """Several workers, and who keeps them.

    Attributes:
        killed: Those that were, by their process ids.
    """

    def __init__(self, number=3):
        self._number = number
        self.killed = set()

    async def run(self, *, task_status):
        self._keeper = Process("workers", self._number)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._keeper.run)
            task_status.started(self)
            await trio.sleep_forever()

    def served(self):
        return [self._keeper.served]

    def troubles(self):
        return [self.kill, self.stop, self.end, self.replace]

    async def _worker(self):
        peer = await self._keeper.served.peer()
        with peer.stream.socket:
            answer = await peer.modern(call("where", id=1))
        return int(answer.json["result"]["content"][0]["text"])

    async def kill(self, _chance):
        worker = await self._worker()
        self.killed.add(worker)
        os.kill(worker, signal.SIGKILL)

    async def end(self, _chance):
        os.kill(await self._worker(), signal.SIGTERM)

    async def stop(self, _chance):
        worker = await self._worker()
        os.kill(worker, signal.SIGSTOP)
        await trio.sleep(1)
        os.kill(worker, signal.SIGCONT)

    async def replace(self, _chance):
        self._keeper.process.send_signal(signal.SIGHUP)
        await trio.sleep(2)


SYSTEMS = {
    "redis": partial(Replicas, "redis"),
    "valkey": partial(Replicas, "valkey"),
    "workers": Workers,
}
"""What chaos can come over."""


LEAST = 20
"""Right answers, without which it would show nothing, however few the turns are that a busy machine gives in its seconds."""


async def chaos(system, seconds, seed=1):
    """Let chaos come over some processes for so many seconds, and return what came of it."""
    chance, figures = random.Random(seed), Figures()
    with tempfile.TemporaryDirectory(prefix="books-") as folder, shelf(folder) as books:
        async with trio.open_nursery() as nursery:
            await nursery.start(system.run)
            clients = [Client(system.served, chance, figures) for _ in range(IN_SESSIONS + WITHOUT)]
            until = time.monotonic() + seconds

            def over():
                return time.monotonic() >= until and figures.ends["right"] >= LEAST and bool(figures.troubles)

            async with trio.open_nursery() as asking:
                for number, client in enumerate(clients):
                    client.right_at = time.monotonic()
                    asking.start_soon(client.run if number < IN_SESSIONS else client.run_without, over)
                while not over():
                    troubles = system.troubles()
                    trouble = troubles[sum(figures.troubles.values()) % len(troubles)]
                    await trouble(chance)
                    figures.troubles[trouble.__name__] += 1
                    await get_over(clients, over)
            figures.faults += await books.faults(system.killed)
            figures.books = total(books.read().values())
            nursery.cancel_scope.cancel()
    return figures


async def get_over(clients, over):
    """Wait until the trouble is over for each client: its session is somebody's again."""
    await trio.sleep(1.5 * LEASE)
    troubled = time.monotonic()
    while not over() and any(client.right_at < troubled for client in clients):  # noqa: ASYNC110
        await trio.sleep(0.05)
