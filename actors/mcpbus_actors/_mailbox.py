"""What an address points to: the state of an actor, how much waits for it, and who is to hear of its end.

This is all that is known of an actor where messages are told and handled. What else it has while it lives is added by
`mcpbus_actors._life.LiveMailbox`, and the powers that it is given by `mcpbus_actors.ActorContext`.

What an address points to once its actor has stopped.
"""

from abc import ABC, abstractmethod
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from mcpbus_actors._errors import LifecycleError
from mcpbus_actors._messages import REFUSALS, DeadLetterReason, StopReason
from mcpbus_actors._states import STOPPED, LifecycleState

M = TypeVar("M")
T = TypeVar("T")
M_contra = TypeVar("M_contra", contravariant=True)

CAPACITY: Final = 1024
"""Messages that may wait for one actor, unless ``spawn`` is told otherwise."""

SmallSet: TypeAlias = tuple[T, ...] | set[T]
"""A set that mostly has one member, or none: a set of one takes 216 bytes, a tuple 48. An actor has up to four of them, and a
program has thousands of actors."""


def added(few: SmallSet[T], member: T) -> SmallSet[T]:
    """Return a set with one member more, to be kept from now on; harmless if it is in there already."""
    if not few:
        return (member,)
    if isinstance(few, tuple):
        few = set(few)
    few.add(member)
    return few


def removed(few: SmallSet[T], member: T) -> SmallSet[T]:
    """Return a set without a member, to be kept from now on; harmless if it is not in there."""
    if isinstance(few, set):
        few.discard(member)
        return few
    return () if member in few else few


class Actor(Protocol[M_contra]):
    """What a factory returns: state, and one method that takes one message at a time."""

    def handle(self, message: M_contra, /) -> None:
        """Handle a message. It cannot wait; what it raises is for the supervisor."""


class _NullActor:
    """The actor of a cell that has none, before its factory returns and after its end."""

    __slots__ = ()

    def handle(self, message: object, /) -> None:
        raise LifecycleError(f"nobody is there to handle {message!r}")


NOBODY: Final = _NullActor()


class SystemHandle(Protocol):
    """The system of a mailbox, as far as addresses know it."""

    def refuse(self, recipient: Any, message: object, reason: DeadLetterReason) -> DeadLetterReason:
        """Take a message that was not accepted, and return the reason for its sender."""

    def next_name(self) -> str:
        """Make a name for an actor that has none."""


class Watcher(Protocol):
    """Whoever is to hear of an actor's end: another actor, or a question that was put to it."""

    def watched_ended(self, address: Any, reason: StopReason, /) -> None:
        """Take notice that the actor at this address has ended."""


class OwnedResource(Protocol):
    """What an actor has started, and what ends with it: a task or a timer."""

    def abandon(self) -> None:
        """End, and tell the actor nothing more."""


class Mailbox(ABC, Generic[M]):
    """What an address points to: the cell of an actor, or what is left when it has ended.

    Attributes:
        system: The system it is part of.
    """

    __slots__ = ("_actor", "_capacity", "_state", "_tasks", "_timers", "_waiting", "_watchers", "system")

    system: SystemHandle
    _actor: Actor[M]
    _capacity: int
    _state: LifecycleState
    _waiting: int  # in the user lane
    # Few actors have many of these, and an empty set is larger than a cell.
    _tasks: SmallSet[OwnedResource]
    _timers: SmallSet[OwnedResource]
    _watchers: SmallSet[Watcher]

    @abstractmethod
    def refusal(self) -> DeadLetterReason:
        """Return with what a message is refused once this mailbox takes no more."""

    @abstractmethod
    def end_reason(self) -> StopReason:
        """Return why the actor ended; only what is left of one knows."""

    @abstractmethod
    def end(self, reason: StopReason) -> None:
        """End the actor and all below it; the dispatcher must be busy."""

    @abstractmethod
    def raised(self, message: object, error: BaseException) -> None:
        """Deal with what the actor raised when it handled a message."""

    @abstractmethod
    def lose(self, message: object, reason: DeadLetterReason | None) -> None:
        """Give up a message that was accepted; if no reason is given, for that with which others are refused now."""

    def add_watcher(self, watcher: Watcher) -> None:
        """Tell a watcher when the actor ends."""
        self._watchers = added(self._watchers, watcher)

    def remove_watcher(self, watcher: Watcher) -> None:
        """Tell it no longer."""
        self._watchers = removed(self._watchers, watcher)


class ClosedMailbox(Mailbox[Any]):
    """The mailbox of those who have none any more; one in a system for all that ended for the same reason.

    So the address of a stopped actor keeps nothing of it in memory, and `Address.tell` looks at a
    state as it always does. Nothing that is there only while an actor lives is here.
    """

    __slots__ = ("_reason",)

    def __init__(self, system: SystemHandle, reason: StopReason) -> None:
        self.system = system
        self._state = STOPPED
        self._watchers = ()
        self._reason = reason

    def refusal(self) -> DeadLetterReason:
        """Return with what a message is refused."""
        return REFUSALS[self._reason]

    def end_reason(self) -> StopReason:
        """Return why the actors ended whose addresses point here."""
        return self._reason

    def end(self, reason: StopReason) -> None:
        """Do nothing: they have ended."""

    def raised(self, message: object, error: BaseException) -> None:
        """Do nothing: nobody is there who could raise anything."""

    def lose(self, message: object, reason: DeadLetterReason | None) -> None:
        """Do nothing: no message is accepted that could be lost."""
