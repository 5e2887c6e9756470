# ruff: noqa: SLF001 - cells read one another, and an address is the outside of a cell
"""What an actor is given of the world: its own address, and the powers it has."""

import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, TypeVarTuple

import trio

from actors import _ending, _spawning, _tasks
from actors._address import Address
from actors._ask import Ask
from actors._errors import LifecycleError
from actors._few import Few, added, removed
from actors._lifecycle import STARTING, STOPPED, STOPPING, State
from actors._messages import Discard, Stopped, StopReason
from actors._supervision import Strategy
from actors._tasks import Task
from actors._timers import Timer

if TYPE_CHECKING:
    from actors._dispatch import Dispatcher
    from actors.system import System

M = TypeVar("M")
C = TypeVar("C")
Args = TypeVarTuple("Args")
M_contra = TypeVar("M_contra", contravariant=True)

CAPACITY: Final = 1024
"""Messages that may wait for one actor, unless ``spawn`` is told otherwise."""


class Actor(Protocol[M_contra]):
    """What a factory returns: state, and one method that takes one message at a time."""

    def handle(self, message: M_contra, /) -> None:
        """Handle a message. It cannot wait; what it raises is for the supervisor."""


class _Nobody:
    """The actor of a cell that has none, before its factory returns and after its end."""

    __slots__ = ()

    def handle(self, message: object, /) -> None:
        raise LifecycleError(f"nobody is there to handle {message!r}")


NOBODY: Final = _Nobody()


def make_nobody(cell: "Cell[Any]", /) -> Actor[Any]:
    """Take the place of the factory of a cell that has ended."""
    raise LifecycleError(f"{cell!r} starts no actor any more")


class Cell(Generic[M]):
    """An actor's powers, given to its factory. Nobody else should hold it.

    All that an actor does to the world goes through its cell, from within ``handle``, the factory, or
    a callback of `on_stop`. Everything that is started here belongs to the present instance: when the
    actor ends or is restarted, its children are stopped, its tasks and timers cancelled, its watches
    given up.

    Attributes:
        address: Where this actor can be reached.
        system: The system it lives in.
    """

    __slots__ = (
        "_actor",
        "_args",
        "_callbacks",
        "_capacity",
        "_children",
        "_dispatcher",
        "_factory",
        "_failures",
        "_parent",
        "_state",
        "_strategy",
        "_tasks",
        "_timers",
        "_waiting",
        "_watchers",
        "_watching",
        "address",
        "system",
    )

    def __init__(  # noqa: PLR0917 - made in one place; keywords would cost a tenth of a spawn
        self,
        system: "System",
        dispatcher: "Dispatcher",
        parent: "Cell[Any] | None",
        factory: Callable[..., Actor[M]],
        args: tuple[Any, ...],
        capacity: int,
        strategy: Strategy | None,
    ) -> None:
        self.system = system
        self.address: Address[M]
        self._dispatcher = dispatcher
        self._parent = parent
        # Nobody restarts an actor without a strategy, and it need not keep what that would take.
        self._factory = factory if strategy is not None else make_nobody
        self._args = args if strategy is not None else ()
        self._capacity = capacity
        self._strategy = strategy
        self._state: State = STARTING
        self._actor: Actor[M] = NOBODY
        self._waiting = 0  # in the user lane
        # Few actors have many of these, and an empty set is larger than a cell.
        self._children: dict[Cell[Any], None] | None = None
        self._tasks: Few[Task] = ()
        self._timers: Few[Timer] = ()
        self._watchers: Few[Cell[Any] | Ask[Any]] = ()
        self._watching: Few[Address[Any]] = ()
        self._callbacks: tuple[Callable[[StopReason], object], ...] = ()
        self._failures: list[float] | None = None

    def spawn(
        self,
        factory: Callable[["Cell[C]", *Args], Actor[C]],
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
        return _spawning.spawn(self.system, self, factory, args, name, capacity, strategy)

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
        self._dispatcher.check_thread()
        return _tasks.start(self, function, args, context, function if name is None else name)

    def adopt(self, task: Task) -> bool:
        """Take over a guest, or another actor's task: its end arrives here, and it is cancelled when this actor ends.

        Returns:
            Whether it was; not if it has ended already.

        Raises:
            LifecycleError: This actor has stopped.
        """
        if self._state >= STOPPING:
            raise self._gone()
        return task.move(self)

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
        self._dispatcher.check_thread()
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
        self._dispatcher.check_thread()
        other = address._cell
        if other is self or other.system is not self.system:
            raise ValueError(f"{self.address.name} cannot watch {address.name}: itself, or of another system")
        if other._state is STOPPED:
            self._dispatcher.notify(self, Stopped(address, other.end_reason()))
            return
        other.add_watcher(self)
        self._watching = added(self._watching, address)

    @trio.lowlevel.enable_ki_protection
    def unwatch(self, address: Address[Any]) -> None:
        """Watch no longer. A `Stopped` that is on its way still arrives."""
        self._watching = removed(self._watching, address)
        address._cell.remove_watcher(self)

    @trio.lowlevel.enable_ki_protection
    def stop(self, reason: StopReason | None = None) -> None:
        """End this actor: its address refuses from now on, and nothing is handled after this turn.

        What waits in its queue is discarded. To stop twice is harmless.

        Args:
            reason: What its watchers are told; `StopReason.STOPPED` if not given.

        Raises:
            RuntimeError: Called from a thread that trio does not run in.
        """
        self._dispatcher.check_thread()
        _ending.ask_to_stop(self, reason or StopReason.STOPPED)

    @trio.lowlevel.enable_ki_protection
    def stop_child(self, address: Address[Any]) -> None:
        """End a child and all below it; harmless if it has ended.

        Raises:
            ValueError: It is not a child of this actor.
            RuntimeError: Called from a thread that trio does not run in.
        """
        self._dispatcher.check_thread()
        child = address._cell
        if child._state is STOPPED:
            return
        if child._parent is not self:
            raise ValueError(f"{address.name} is not a child of {self.address.name}")
        _ending.ask_to_stop(child, StopReason.PARENT)

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

    def add_watcher(self, watcher: "Cell[Any] | Ask[Any]") -> None:
        """Tell a watcher when this actor ends; for this package."""
        self._watchers = added(self._watchers, watcher)

    def remove_watcher(self, watcher: "Cell[Any] | Ask[Any]") -> None:
        """Tell it no longer; for this package."""
        self._watchers = removed(self._watchers, watcher)

    def watched_ended(self, address: Address[Any], reason: StopReason) -> None:
        """Take notice that a watched actor has ended; for this package."""
        self._watching = removed(self._watching, address)
        self._dispatcher.notify(self, Stopped(address, reason))

    def refusal(self) -> Discard:
        """Return with what a message is refused once this cell is stopping; for this package."""
        return Discard.STOPPED

    def end_reason(self) -> StopReason:
        """Return why this actor ended; for this package, and only a stopped one knows."""
        raise LifecycleError(f"{self.address.name} has not stopped")

    def empty(self) -> None:
        """Let go of everything at the end of the life; for this package.

        The cell may be kept by whoever wrote the actor. Emptied, it keeps nothing else in memory, and
        what it held is freed without the help of the garbage collector.
        """
        self._actor = NOBODY
        self._factory = make_nobody
        self._args = ()
        self._watchers = ()
        self._parent = self._strategy = self._children = self._failures = None

    def _gone(self) -> LifecycleError:
        return LifecycleError(f"{self.address.name} has stopped and can do nothing any more")

    def __repr__(self) -> str:
        return f"<Cell {self.address.name} {self._state.name.lower()}>"
