"""What the actors cost, and beside it what bare Python and trio cost.

Every figure is the best of several rounds, because a round can only be slowed down by what else the machine does.
"""

import contextvars
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import mcpbus_actors as actors
import trio

from benchmarks.scenarios.scenario import Figures, Inside, Metric

ROUNDS = 7
SIZE = 10_000
BATCH = 100


class Idle:
    """The smallest useful actor: one slot."""

    __slots__ = ("cell",)

    def __init__(self, cell: actors.ActorContext[Any]) -> None:
        self.cell = cell

    def handle(self, message: Any) -> None:
        """Do nothing with a message."""


class Echo(Idle):
    """Answers every question."""

    __slots__ = ()

    def handle(self, message: Any) -> None:
        """Answer with the question."""
        message.reply(message.message)


class Teller(Idle):
    """Tells another actor many times in one turn."""

    __slots__ = ("to",)

    def __init__(self, cell: actors.ActorContext[Any], to: actors.Address[Any]) -> None:
        super().__init__(cell)
        self.to = to

    def handle(self, message: Any) -> None:
        """Tell as many times as it is told to."""
        tell = self.to.tell
        for _ in range(message):
            tell(None)


class Spawner(Idle):
    """Spawns children that stop themselves, in one turn each."""

    __slots__ = ()

    def handle(self, message: Any) -> None:
        """Spawn as many as it is told to, and let each stop."""
        for _ in range(message):
            self.cell.spawn(Stopper)


class Stopper(Idle):
    """Stops as soon as it has started."""

    __slots__ = ()

    def __init__(self, cell: actors.ActorContext[Any]) -> None:
        super().__init__(cell)
        cell.stop()


class Starter(Idle):
    """Starts tasks that end at once."""

    __slots__ = ()

    def handle(self, message: Any) -> None:
        """Start as many as it is told to."""
        if type(message) is int:
            start, context = self.cell.start_task, contextvars.Context()
            for _ in range(message):
                start(nothing, context=context)


async def nothing() -> None:
    """Do nothing; the cheapest task there is."""


async def nothing_in_a_scope(scope: trio.CancelScope) -> None:
    """Do nothing, but cancellably."""
    with scope:
        await nothing()


async def best(run: Callable[[], Awaitable[None]]) -> float:
    """Return the microseconds of one of ``SIZE`` operations, in the best round."""
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        start = time.perf_counter()
        await run()
        times.append(time.perf_counter() - start)
    return min(times) / SIZE * 1e6


async def bytes_per_idle_actor(count: int = 50_000) -> float:
    """Return what an actor takes that was told once and now waits."""
    async with actors.open_system() as system:
        addresses: list[Any] = [None] * count
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for index in range(count):
            addresses[index] = address = system.spawn(Idle)
            address.tell(None)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    return taken / count


class Stage:
    """A system with actors for every measurement; each method does its operation ``SIZE`` times."""

    def __init__(self, system: actors.ActorSystem, nursery: trio.Nursery) -> None:
        self.system = system
        self.nursery = nursery
        self.bare = Idle(None)  # type: ignore[arg-type]
        self.idle = system.spawn(Idle, capacity=SIZE)
        self.echo = system.spawn(Echo)
        self.teller = system.spawn(Teller, self.idle)
        self.spawner = system.spawn(Spawner)
        self.starter = system.spawn(Starter)

    async def call(self) -> None:
        """Call a method, for comparison."""
        for _ in range(SIZE):
            self.bare.handle(None)

    async def tell(self) -> None:
        """Tell an idle actor."""
        for _ in range(SIZE):
            self.idle.tell(None)

    async def burst(self) -> None:
        """Tell from inside a turn, so that everything waits first."""
        for _ in range(SIZE // BATCH):
            self.teller.tell(BATCH)

    async def ask(self) -> None:
        """Ask, and have the answer in the same turn."""
        for _ in range(SIZE):
            await self.echo.ask(None, timeout=1.0)

    async def checkpoint(self) -> None:
        """Pass a checkpoint, for comparison: every ask passes one."""
        for _ in range(SIZE):
            await trio.lowlevel.checkpoint()

    async def spawn_from_task(self) -> None:
        """Spawn and stop while nothing is being handled."""
        for _ in range(SIZE):
            self.system.stop(self.system.spawn(Idle))

    async def spawn_in_turn(self) -> None:
        """Spawn children that stop themselves."""
        for _ in range(SIZE // BATCH):
            self.spawner.tell(BATCH)

    async def bare_task(self) -> None:
        """Start trio's own tasks, for comparison."""
        for _ in range(SIZE // BATCH):
            for _ in range(BATCH):
                self.nursery.start_soon(nothing)
            while self.nursery.child_tasks:
                await trio.lowlevel.checkpoint()

    async def scoped_task(self) -> None:
        """Start trio's own tasks with a cancel scope each, for comparison."""
        for _ in range(SIZE // BATCH):
            for _ in range(BATCH):
                self.nursery.start_soon(nothing_in_a_scope, trio.CancelScope())
            while self.nursery.child_tasks:
                await trio.lowlevel.checkpoint()

    async def task(self) -> None:
        """Start tasks of an actor, which is told of their ends."""
        for _ in range(SIZE // BATCH):
            self.starter.tell(BATCH)
            while self.system.statistics().tasks:
                await trio.lowlevel.checkpoint()


class Actors(Inside):
    """Each operation of an actor, by itself."""

    name = "actors"
    in_quick = False
    title = "Actors"
    what = f"The best of {ROUNDS} rounds of {SIZE:,} operations each, in one process, and what bare Python and trio take."
    metrics = (
        Metric("idle_bytes", "bytes of an idle actor"),
        Metric("call", "a plain method call, µs", 2),
        Metric("tell", "tell to an idle actor, µs", 2),
        Metric("burst", "tell in a burst, µs", 2),
        Metric("checkpoint", "a bare trio checkpoint, µs", 2),
        Metric("ask", "ask, µs", 2),
        Metric("spawn_from_task", "spawn + stop from a task, µs", 2),
        Metric("spawn_in_turn", "spawn + stop inside a turn, µs", 2),
        Metric("bare_task", "a bare trio task, µs", 2),
        Metric("scoped_task", "a bare trio task with a scope, µs", 2),
        Metric("task", "an actor's task, µs", 2),
    )
    sizes = {0: 3}

    def cost(self, sizes: Sequence[int], seconds: float) -> float:  # noqa: ARG002  as long as it takes
        """Return about how many seconds a turn takes."""
        return 5.0

    def turn(self, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002  as long as it takes
        """Measure everything, one after the other."""
        yield 0, trio.run(self._measure)

    async def _measure(self) -> Figures:
        figures = {"idle_bytes": await bytes_per_idle_actor()}
        async with actors.open_system() as system, trio.open_nursery() as nursery:
            stage = Stage(system, nursery)
            for metric in self.metrics[1:]:
                figures[metric.key] = await best(getattr(stage, metric.key))
        return figures
