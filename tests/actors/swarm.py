"""A random program for actors, and a ledger of everything that becomes of it.

Messages are small scripts: what their recipient does in the turn in which it handles them. A program is
one list of steps for each of a few tasks outside, which run side by side with random scheduling under a
virtual clock. Everything is written into the ledger from the outside, independently of the library's
own accounts, so that the two can be compared.
"""

import contextvars
import itertools
import logging
from collections import defaultdict
from typing import Any
from unittest import mock

import attrs
import mcpbus_actors as actors
import mcpbus_actors.testing
import trio
import trio.testing
from mcpbus_actors import _dispatch
from swarm_programs import STRATEGIES


class CrashError(Exception):
    """What scripts and tasks raise."""


@attrs.frozen(eq=False)
class Order:
    """One message: numbered, so that its fate can be told, and in the sequence of its sender."""

    number: int
    sender: object
    script: tuple[tuple[Any, ...], ...]
    essential: bool = False
    timed: bool = False


def expendable(message: Any) -> bool:
    """Tell whether a full mailbox may refuse a message: what a task or a script of the swarm does not insist on."""
    if isinstance(message, actors.Ask):
        message = message.message
    return isinstance(message, Order) and not message.essential


class Scripted:
    """The actor of the swarm: does what its messages say."""

    def __init__(self, cell: actors.ActorContext[Any], swarm: "Swarm") -> None:
        self.cell = cell
        self.swarm = swarm
        self.dead = False
        self.at_work = False
        self.tasks: list[actors.Task] = []
        self.timers: list[actors.Timer] = []
        self.asks: list[actors.Ask[Any]] = []
        cell.on_stop(self.ended)
        swarm.instances.append(self)
        swarm.bound[cell.address].add(cell)
        swarm.bound[cell].add(cell.address)

    def ended(self, reason: actors.StopReason) -> None:
        self.dead = True

    def handle(self, message: Any) -> None:
        swarm = self.swarm
        if self.at_work:
            swarm.faults.append(f"{self.cell.address} was interleaved")
        if self.dead:
            swarm.faults.append(f"{self.cell.address} handled {message} after its end")
        self.at_work = True
        swarm.observe(self.cell)
        if isinstance(message, actors.Ask):
            self.asks.append(message)
            message = message.message
        try:
            if isinstance(message, Order):
                swarm.handled[message.number].append(self.cell.address)
                swarm.order[message.sender, self.cell.address].append(message.number)
                for verb, *args in message.script:
                    getattr(self, verb.replace(" ", "_") + "_")(*args)
            elif isinstance(message, actors.TaskEnded):
                swarm.ends.append(message)
        except BaseException:
            self.dead = True
            raise
        finally:
            self.at_work = False

    def raise_(self) -> None:
        raise self.swarm.crash()

    def stop_(self) -> None:
        self.cell.stop()

    def spawn_(self, strategy: str, capacity: int) -> None:
        if not self.cell.address.stopped and len(self.swarm.addresses) < 30:
            child = self.cell.spawn(Scripted, self.swarm, capacity=capacity, strategy=STRATEGIES[strategy])
            self.swarm.addresses.append(child)

    def watch_(self, index: int) -> None:
        other = self.swarm.pick(index)
        if other is not self.cell.address and not self.cell.address.stopped:
            self.cell.watch(other)

    def register_(self, name: str) -> None:
        registry = self.cell.system.registry
        if name not in registry and not self.cell.address.stopped:
            registry.register(name, self.cell.address)

    def task_(self, kind: str) -> None:
        if not self.cell.address.stopped:
            self.swarm.planned += 1
            self.tasks.append(self.cell.start_task(self.swarm.work, kind, context=contextvars.Context()))

    def cancel_task_(self, index: int) -> None:
        if self.tasks:
            self.tasks[index % len(self.tasks)].cancel()

    def cancel_timer_(self, index: int) -> None:
        if self.timers:
            self.timers[index % len(self.timers)].cancel()

    def reply_(self, index: int) -> None:
        if self.asks:
            self.asks[index % len(self.asks)].reply("answer")

    def tell_(self, index: int, script: Any) -> None:
        self.swarm.tell(self, index, script)

    def insist_(self, index: int, script: Any) -> None:
        self.swarm.tell(self, index, script, essential=True)

    def after_(self, seconds: float, script: Any) -> None:
        if not self.cell.address.stopped:
            # A timer may be cancelled, so its message is counted as told only when it is handled.
            order = Order(next(self.swarm.numbers), self, script, timed=True)
            self.timers.append(self.cell.after(seconds, order))


class Swarm:
    """A system at work, and the ledger."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.system: actors.ActorSystem
        self.addresses: list[actors.Address[Any]] = []
        self.instances: list[Scripted] = []
        self.bound: dict[Any, set[Any]] = defaultdict(set)
        self.accepted: set[int] = set()
        self.refused: dict[int, actors.DeadLetterReason] = {}
        self.handled: dict[int, list[Any]] = defaultdict(list)
        self.letters: dict[int, list[actors.DeadLetterReason]] = defaultdict(list)
        self.order: dict[Any, list[int]] = defaultdict(list)
        self.ends: list[actors.TaskEnded] = []
        self.crashes: list[CrashError] = []
        self.seen: set[int] = set()
        self.planned = 0
        self.ended = 0
        self.asks: list[object] = []
        self.asks_put = 0
        self.faults: list[str] = []
        self.checks: list[Any] = []

    def crash(self) -> CrashError:
        self.crashes.append(CrashError(str(len(self.crashes))))
        return self.crashes[-1]

    def pick(self, index: int) -> actors.Address[Any]:
        return self.addresses[index % len(self.addresses)]

    def tell(self, sender: object, index: int, script: Any, *, essential: bool = False) -> None:
        address = self.pick(index)
        order = Order(next(self.numbers), sender, script, essential)
        stopped = address.stopped
        try:
            discard = address.tell(order)
        except BaseException as error:
            self.faults.append(f"tell raised {error!r}")
            raise
        if stopped and discard is None:
            self.faults.append(f"{address} accepted a message after its end")
        if discard is actors.DeadLetterReason.FULL and essential:
            self.faults.append(f"{address} refused for want of room what is not expendable")
        if discard is actors.DeadLetterReason.FULL and isinstance(sender, str):
            self.faults.append(f"{address} refused a task for want of room that it could have made")
        if discard is None:
            self.accepted.add(order.number)
        else:
            self.refused[order.number] = discard

    def letter(self, letter: actors.DeadLetter) -> None:
        message = letter.message
        if isinstance(message, actors.Ask):
            message = message.message
        if isinstance(message, Order):
            self.letters[message.number].append(letter.reason)
        if isinstance(message, actors.TaskEnded):
            self.ends.append(message)

    def observe(self, cell: Any) -> None:
        waiting = [message for other, message in cell.system.dispatcher.queue if other is cell]
        told = sum(expendable(message) and not getattr(message, "timed", False) for message in waiting)
        if told > cell._capacity:
            self.faults.append(f"{told} expendable messages wait where {cell._capacity} may")
        if cell._waiting != len(waiting):
            self.faults.append(f"{len(waiting)} messages wait, and {cell._waiting} are counted")

    async def work(self, kind: str) -> str:
        try:
            if kind == "raise":
                raise self.crash()
            if kind == "spite":
                try:
                    await trio.sleep_forever()
                finally:
                    raise self.crash()
            if kind == "sleep":
                await trio.sleep(1)
            if kind == "linger":
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(0.5)
            return kind
        finally:
            self.ended += 1

    async def outside(self, number: int, steps: list[tuple[Any, ...]]) -> None:
        sender = f"task {number}"
        for verb, *args in steps:
            if verb == "sleep":
                await trio.sleep(*args)
            elif verb == "tell":
                self.tell(sender, *args)
            elif verb == "insist":
                self.tell(sender, *args, essential=True)
            elif verb == "spawn" and len(self.addresses) < 30:
                self.spawn(*args)
            elif verb == "stop":
                self.system.stop(self.pick(*args))
            elif verb == "ask":
                await self.ask(sender, *args)
            for check in self.checks:
                check(self)

    async def ask(self, sender: object, index: int, script: Any, seconds: float) -> None:
        self.asks_put += 1
        order = Order(next(self.numbers), sender, script)
        latest = trio.current_time() + seconds
        try:
            self.asks.append(await self.pick(index).ask(order, timeout=seconds))
        except actors.AskRefusedError as error:
            self.asks.append(error)
            self.refused[order.number] = error.discard
            return
        except actors.AskError as error:
            self.asks.append(error)
        if trio.current_time() > latest:
            self.faults.append("an ask outlasted its timeout")
        self.accepted.add(order.number)

    def spawn(self, strategy: str, capacity: int) -> None:
        self.addresses.append(
            self.system.spawn(Scripted, self, capacity=capacity, strategy=STRATEGIES[strategy])
        )

    async def main(self, program: list[list[tuple[Any, ...]]]) -> None:
        async with actors.open_system("swarm", self.letter, expendable) as system:
            self.system = system
            for strategy in ("none", "restart", "stop"):
                self.spawn(strategy, 2)
            async with trio.open_nursery() as nursery:
                for number, steps in enumerate(program):
                    nursery.start_soon(self.outside, number, steps)
            for check in self.checks:
                check(self)
            await trio.sleep(100)
            await actors.testing.wait_until_idle(system)
            for check in self.checks:
                check(self)

    def run(self, program: list[list[tuple[Any, ...]]], budget: int = 3) -> "Swarm":
        """Run a program to its end, and collect what surfaced and what was logged."""
        handler = _Collector(self.seen)
        logger = logging.getLogger("mcpbus.actors")
        logger.addHandler(handler)
        propagate, logger.propagate = logger.propagate, False
        try:
            with mock.patch.object(_dispatch, "BUDGET", budget):
                trio.run(self.main, program, clock=trio.testing.MockClock(autojump_threshold=0))
        except BaseExceptionGroup as group:
            self.collect(group)
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagate
        return self

    def collect(self, error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                self.collect(inner)
        elif isinstance(error, CrashError | ZeroDivisionError):
            self.seen.add(id(error))
            if error.__context__ is not None:
                self.collect(error.__context__)
        else:
            raise error


class _Collector(logging.Handler):
    """Notes which exceptions were logged."""

    def __init__(self, seen: set[int]) -> None:
        super().__init__()
        self.seen = seen

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            self.seen.add(id(error))
            error = error.__context__
