# ruff: noqa: SLF001 - a cell is filled in here, and tells what the mailboxes of others hold
"""What an actor is given of the world: its own address, and the powers it has; and how it comes to life."""

import contextvars
from collections.abc import Awaitable, Callable
from threading import get_ident
from typing import Any, TypeVar, TypeVarTuple

import trio

from mcpbus_actors import _ending, _supervision, _tasks
from mcpbus_actors._address import Address, Stopped
from mcpbus_actors._errors import LifecycleError, wrong_thread
from mcpbus_actors._life import LiveMailbox, Strategy, SystemServices
from mcpbus_actors._mailbox import CAPACITY, Actor, added
from mcpbus_actors._messages import StopReason
from mcpbus_actors._states import RUNNING, STARTED, STARTING, STOPPED, STOPPING, TRANSITIONS
from mcpbus_actors._tasks import Task
from mcpbus_actors._timers import Timer

M = TypeVar("M")
C = TypeVar("C")
Args = TypeVarTuple("Args")


class ActorContext(LiveMailbox[M]):
    """An actor's powers, given to its factory. Nobody else should hold it.

    All that an actor does to the world goes through its cell, from within ``handle``, the factory, or
    a callback of `on_stop`. Everything that is started here belongs to the present instance: when the
    actor ends or is restarted, its children are stopped, its tasks and timers cancelled, its watches
    given up.

    Attributes:
        address: Where this actor can be reached.
        system: What it shares with the other actors of its system.
    """

    __slots__ = ()

    def spawn(
        self,
        factory: Callable[["ActorContext[C]", *Args], Actor[C]],
        *args: *Args,
        name: str | None = None,
        capacity: int = CAPACITY,
        strategy: Strategy | None = None,
    ) -> Address[C]:
        """Start a child. It is stopped when this actor ends or is restarted.

        Args:
            factory: Makes the actor from its cell and ``args``; called now, and again at a restart.
            *args: What else the factory is given.
            name: A name for people; need not be unique.
            capacity: Messages that may wait for it; beyond it those that are expendable are refused.
            strategy: Decides what becomes of it when it raises; without one it is stopped.

        Raises:
            LifecycleError: This actor has stopped.
            ValueError: The capacity is less than one.
            RuntimeError: Called from a thread that trio does not run in.
            BaseException: What the factory raised; then nothing was spawned.
        """
        return spawn(self.system, self, factory, args, name, capacity, strategy)

    def start_task(
        self,
        function: Callable[[*Args], Awaitable[Any]],
        *args: *Args,
        context: contextvars.Context,
        name: str | None = None,
    ) -> Task:
        """Start a task. Its end arrives as ``TaskEnded(task, outcome)`` and is never refused.

        Args:
            function: The async function to run.
            *args: What it is given.
            context: The contextvars it runs in, such as those captured when a request arrived; an
                empty ``contextvars.Context()`` if it needs none.
            name: A name for people; the function's, if not given.

        Raises:
            LifecycleError: This actor has stopped.
            RuntimeError: Called from a thread that trio does not run in.
        """
        if self._state >= STOPPING:
            raise self._gone()
        self.system.dispatcher.check_thread()
        return _tasks.start(self.address, function, args, context, function if name is None else name)

    def adopt(self, task: Task) -> bool:
        """Take over an eager task, or another actor's: its end arrives here, and it is cancelled when this actor ends.

        Returns:
            Whether it was; not if it has ended already.

        Raises:
            LifecycleError: This actor has stopped.
        """
        if self._state >= STOPPING:
            raise self._gone()
        return task.move(self.address)

    @trio.lowlevel.enable_ki_protection
    def after(self, seconds: float, message: M) -> Timer:
        """Tell this actor a message later; it is never refused for want of room.

        Args:
            seconds: How much later, by trio's clock.
            message: What to tell. If the timer is cancelled when the message waits in the queue
                already, it still arrives.

        Raises:
            LifecycleError: This actor has stopped.
            ValueError: Seconds are negative or not a number.
            RuntimeError: Called from a thread that trio does not run in.
        """
        if self._state >= STOPPING:
            raise self._gone()
        self.system.dispatcher.check_thread()
        timer = self.system.timers.add(self, seconds, message)
        self._timers = added(self._timers, timer)
        return timer

    @trio.lowlevel.enable_ki_protection
    def watch(self, address: Address[Any]) -> None:
        """Be told ``Stopped(address, reason)`` when another actor ends, at once if it has.

        A restart is not an end. To watch twice is to watch once.

        Raises:
            LifecycleError: This actor has stopped.
            ValueError: The address is this actor's own, or of another system.
            RuntimeError: Called from a thread that trio does not run in.
        """
        if self._state >= STOPPING:
            raise self._gone()
        self.system.dispatcher.check_thread()
        other = address._mailbox
        if other is self or other.system is not self.system:
            raise ValueError(f"{self.address.name} cannot watch {address.name}: itself, or of another system")
        if other._state is STOPPED:
            self.system.dispatcher.notify(self, Stopped(address, other.end_reason()))
            return
        other.add_watcher(self)
        self._watching = added(self._watching, address)

    @trio.lowlevel.enable_ki_protection
    def stop(self, reason: StopReason | None = None) -> None:
        """End this actor: its address refuses from now on, and nothing is handled after this turn.

        What waits in its queue is discarded. To stop twice is harmless.

        Args:
            reason: What its watchers are told; `StopReason.STOPPED` if not given.

        Raises:
            RuntimeError: Called from a thread that trio does not run in.
        """
        self.system.dispatcher.check_thread()
        _ending.ask_to_stop(self.address, reason or StopReason.STOPPED)

    def on_stop(self, callback: Callable[[StopReason], object]) -> None:
        """Call back once when this instance ends in any way, also when ``handle`` raised.

        Callbacks run in the order in which they were given, after the children have ended and the
        tasks have been cancelled (they may still be unwinding). They may tell other actors. What they
        raise is logged. After a restart the fresh instance gives its own.

        Raises:
            LifecycleError: This actor has stopped.
        """
        if self._state >= STOPPING:
            raise self._gone()
        self._callbacks = (*self._callbacks, callback)

    # For this package.
    end = _ending.end
    raised = _supervision.raised

    def _gone(self) -> LifecycleError:
        return LifecycleError(f"{self.address.name} has stopped and can do nothing any more")

    def __repr__(self) -> str:
        return f"<ActorContext {self.address.name} {self._state.name.lower()}>"


new_address = Address.__new__


@trio.lowlevel.enable_ki_protection
def spawn(  # noqa: PLR0917 - called in two places
    system: SystemServices,
    parent: ActorContext[Any] | None,
    factory: Callable[..., Actor[M]],
    args: tuple[Any, ...],
    name: str | None,
    capacity: int,
    strategy: Strategy | None,
) -> Address[M]:
    """Start an actor below a parent, or at the root; see `ActorContext.spawn`."""
    dispatcher = system.dispatcher
    if get_ident() != dispatcher.thread:
        raise wrong_thread()
    if capacity < 1:
        raise ValueError(f"a mailbox must have room for one message at least, not {capacity}")
    cell: ActorContext[M] = ActorContext(system, parent, factory, args, capacity, strategy)
    address: Address[M] = new_address(Address)
    address._dispatcher = dispatcher
    address._mailbox = cell
    address._name = name
    cell.address = address
    if parent is None:
        if system.closed:
            raise LifecycleError(f"system {system.name!r} has closed and spawns nothing any more")
        system.roots[cell] = None
    else:
        state = parent._state
        if state is not RUNNING and state is not STARTING:
            raise LifecycleError(f"{parent.address.name} has stopped and spawns nothing any more")
        if parent._children is None:
            parent._children = {cell: None}
        else:
            parent._children[cell] = None
    system.spawned += 1
    # What the factory tells must not run before the actor that it makes is there.
    outermost, behind = not dispatcher.busy, dispatcher.behind
    dispatcher.busy, dispatcher.behind = True, False
    try:
        cell._actor = factory(cell, *args)
        cell._state = TRANSITIONS[cell._state][STARTED]
    except BaseException:
        _ending.end(cell, StopReason.FAILED)
        raise
    finally:
        dispatcher.behind = behind
        if outermost:
            dispatcher.drain()
    return address


def dead_address(system: SystemServices, reason: StopReason) -> Address[Any]:
    """Return the address of an actor that has ended and never had one, with what it would have ended for."""
    address: Address[Any] = new_address(Address)
    address._dispatcher = system.dispatcher
    address._mailbox = system.tombstones[reason]
    address._name = None
    return address
