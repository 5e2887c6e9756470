"""A system of actors: the nursery they live in, and what they share."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar, TypeVarTuple

import msgspec
import trio

from mcpbus_actors import _context as _cell
from mcpbus_actors import _ending
from mcpbus_actors._address import Address
from mcpbus_actors._context import ActorContext
from mcpbus_actors._dead_letters import DeadLetter, Exceptions
from mcpbus_actors._dispatch import always_expendable
from mcpbus_actors._life import Strategy, SystemServices
from mcpbus_actors._mailbox import CAPACITY, Actor
from mcpbus_actors._messages import DeadLetterReason, StopReason

M = TypeVar("M")
Args = TypeVarTuple("Args")


class SystemStatistics(msgspec.Struct, frozen=True):
    """A snapshot. At every checkpoint ``accepted == handled + discarded + queued``.

    Attributes:
        accepted: Messages that were given a place, system messages included.
        handled: Messages that `handle` returned from, and the one it is at work on, if any.
        discarded: Messages that were accepted and then not handled, or raised on.
        queued: Messages that wait now.
        dead_letters: Messages that were refused or discarded, by reason.
        late_replies: Replies to questions that had already ended.
        actors: Actors alive now.
        spawned: Actors spawned so far.
        failures: Exceptions of actors and of their callbacks so far.
        restarts: Fresh instances put in the place of one that raised.
        tasks: Tasks running now, those of the system itself included.
        timers: Timers running now.
    """

    accepted: int
    handled: int
    discarded: int
    queued: int
    dead_letters: Mapping[DeadLetterReason, int]
    late_replies: int
    actors: int
    spawned: int
    failures: int
    restarts: int
    tasks: int
    timers: int


class ActorSystem(SystemServices):
    """Actors that share one nursery, one dispatcher and one clock. Made by `open_system`.

    Attributes:
        name: A name for people.
        registry: Names under which actors of this system can be found.
    """

    __slots__ = ()

    def spawn(
        self,
        factory: Callable[[ActorContext[M], *Args], Actor[M]],
        *args: *Args,
        name: str | None = None,
        capacity: int = CAPACITY,
        strategy: Strategy | None = None,
    ) -> Address[M]:
        """Start an actor that has no parent. If it escalates, the system ends with its exception.

        The arguments and errors are those of `ActorContext.spawn`.

        Raises:
            LifecycleError: The system has closed.
        """
        return _cell.spawn(self, None, factory, args, name, capacity, strategy)

    @trio.lowlevel.enable_ki_protection
    def stop(self, address: Address[Any]) -> None:
        """End an actor and all below it; harmless if it has ended.

        Raises:
            ValueError: It belongs to another system.
            RuntimeError: Called from a thread that trio does not run in.
        """
        self.dispatcher.check_thread()
        if address._mailbox.system is not self:  # noqa: SLF001 - nobody else needs to know
            raise ValueError(f"{address.name} belongs to another system than {self.name!r}")
        _ending.ask_to_stop(address, StopReason.STOPPED)

    def catch_up(self) -> None:
        """Take the turns that are left to the system's own task, if any are: for a task that is about to tell something large.

        Nobody knows how much waits with what was told, and others may be about to do the same in this turn of the scheduler. From within
        a turn of an actor nothing is done: what is told there is handled after it.
        """
        self.dispatcher.check_thread()
        self.dispatcher.make_room()

    def tap_dead_letters(self, callback: Callable[[DeadLetter], object]) -> Callable[[], None]:
        """Show a callback every message that is refused, discarded, or raised on from now on.

        It runs in the turn in which that happens and must not wait. What it raises is logged. Dead
        letters that it causes itself are counted and not shown.

        Returns:
            A function that ends this; calling it twice is harmless.
        """
        return self.dead_letters.tap(callback)

    def statistics(self) -> SystemStatistics:
        """Return what the system has done and holds at this moment."""
        dispatcher = self.dispatcher
        return SystemStatistics(
            accepted=dispatcher.accepted,
            handled=dispatcher.handled,
            discarded=dispatcher.discarded,
            queued=dispatcher.queued,
            dead_letters=MappingProxyType(
                {reason: self.dead_letters.counts[reason] for reason in DeadLetterReason}
            ),
            late_replies=dispatcher.late_replies,
            actors=self._count_actors(),
            spawned=self.spawned,
            failures=self.failures,
            restarts=self.restarts,
            tasks=len(dispatcher.nursery.child_tasks),
            timers=len(self.timers),
        )

    def _count_actors(self) -> int:
        living = list(self.roots)
        for cell in living:  # the list grows while it is walked
            living.extend(cell._children or ())  # noqa: SLF001 - nobody else needs the tree
        return len(living)

    @trio.lowlevel.enable_ki_protection
    def close(self) -> None:
        """End every actor and discard what waits; for `open_system`, which then awaits the tasks."""
        self.closed = True
        self.dispatcher.busy, self.dispatcher.behind = True, False
        for cell in reversed(list(self.roots)):
            _ending.end(cell, StopReason.SYSTEM)
        self.dispatcher.settle()
        self.timers.close()

    def __repr__(self) -> str:
        return f"<ActorSystem {self.name!r} {'closed' if self.closed else 'open'}>"


@asynccontextmanager
async def open_system(
    name: str = "actors",
    dead_letter: Callable[[DeadLetter], object] | None = None,
    expendable: Callable[[Any], bool] = always_expendable,
    expected: Exceptions = (),
) -> AsyncIterator[ActorSystem]:
    """Open a system of actors; leaving the block ends it and leaves nothing running.

    When the block is left, every actor is stopped, what waits in queues is discarded with
    `DeadLetterReason.CLOSED`, tasks are cancelled, and their ends are awaited.

    ```python
    async with actors.open_system(name="shop") as system:
        till = system.spawn(Till)
        till.tell(Add(2))
    ```

    Args:
        name: A name for people.
        dead_letter: Shown every dead letter, from first to last; see `ActorSystem.tap_dead_letters`.
        expendable: Tells which messages a full mailbox refuses: all, unless given. The others are accepted
            however many wait, in the same order. So it is for what something else bounds the number of, such
            as one reply for each request; and where such a message was lost, somebody would wait for ever.
        expected: Exceptions of tasks that are no faults, such as refusals. They are not logged if the actor of the task has ended.

    Raises:
        BaseExceptionGroup: A root actor escalated, an actor or a task raised a
            `KeyboardInterrupt`. The block is cancelled then.
    """
    async with trio.open_nursery() as nursery:
        system = ActorSystem(name, nursery, expendable, expected)
        if dead_letter is not None:
            system.tap_dead_letters(dead_letter)
        try:
            yield system
        finally:
            system.close()
    if nursery.cancel_scope.cancelled_caught:
        raise RuntimeError(f"the system {name!r} was ended by a cancellation that was not meant for it")
