"""What an actor has while it lives, and what it shares with all others of its system.

The functions that end, supervise and spawn actors work on these.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import trio

from mcpbus_actors._address import Address, Stopped
from mcpbus_actors._dead_letters import DeadLetters, Exceptions
from mcpbus_actors._dispatch import Dispatcher, always_expendable
from mcpbus_actors._errors import LifecycleError
from mcpbus_actors._mailbox import NOBODY, Actor, ClosedMailbox, Mailbox, SmallSet, removed
from mcpbus_actors._messages import DeadLetterReason, Directive, StopReason
from mcpbus_actors._registry import NameRegistry
from mcpbus_actors._states import STARTING
from mcpbus_actors._timers import Timers

M = TypeVar("M")

Strategy = Callable[[Address[Any], BaseException, int], Directive]
"""Decides about a child that raised: its address, the exception, and how many times it has failed in the
last 5 seconds, this one included."""


class SystemServices:
    """What the actors of one system share; the part of `ActorSystem` that they are given.

    Attributes:
        name: A name for people.
        registry: Names under which actors of this system can be found.
    """

    __slots__ = (
        "_serial",
        "closed",
        "dead_letters",
        "dispatcher",
        "failures",
        "name",
        "registry",
        "restarts",
        "roots",
        "spawned",
        "timers",
        "tombstones",
    )

    def __init__(
        self,
        name: str,
        nursery: trio.Nursery,
        expendable: Callable[[Any], bool] = always_expendable,
        expected: Exceptions = (),
    ) -> None:
        self.name = name
        self.registry = NameRegistry()
        self.dispatcher = Dispatcher(nursery, expendable)
        self.dead_letters = DeadLetters(self.surface, expected)
        self.timers = Timers(self.dispatcher)
        self.tombstones: Mapping[StopReason, ClosedMailbox] = {
            reason: ClosedMailbox(self, reason) for reason in StopReason
        }
        self.roots: dict[LiveMailbox[Any], None] = {}
        self.closed = False
        self.spawned = self.failures = self.restarts = 0
        self._serial = 0

    def next_name(self) -> str:
        """Make a name for an actor that has none, the first time somebody asks for it; for this package."""
        self._serial += 1
        return f"{self.name}-{self._serial}"

    def refuse(self, recipient: Address[Any], message: object, reason: DeadLetterReason) -> DeadLetterReason:
        """Take a message that was not accepted, and return the reason for its sender; for this package."""
        self.dead_letters.post(recipient, message, reason)
        return reason

    def surface(self, error: BaseException) -> None:
        """Raise an exception in the system's nursery, where nobody can miss it; for this package."""
        self.dispatcher.context.run(self.dispatcher.nursery.start_soon, _raise, error)


async def _raise(error: BaseException) -> NoReturn:
    raise error


def null_actor(life: "LiveMailbox[Any]", /) -> Actor[Any]:
    """Take the place of the factory of an actor that has ended."""
    raise LifecycleError(f"{life!r} starts no actor any more")


class LiveMailbox(Mailbox[M]):
    """The mailbox of a living actor, and what ends with it: its children, watches and callbacks.

    Attributes:
        address: Where this actor can be reached.
        system: What it shares with the others of its system.
    """

    __slots__ = (
        "_args",
        "_callbacks",
        "_children",
        "_factory",
        "_failures",
        "_parent",
        "_strategy",
        "_watching",
        "address",
    )

    system: SystemServices
    address: Address[M]

    def __init__(  # noqa: PLR0917 - made in one place; keywords would cost a tenth of a spawn
        self,
        system: SystemServices,
        parent: "LiveMailbox[Any] | None",
        factory: Callable[..., Actor[M]],
        args: tuple[Any, ...],
        capacity: int,
        strategy: Strategy | None,
    ) -> None:
        self.system = system
        self._parent = parent
        # Nobody restarts an actor without a strategy, and it need not keep what that would take.
        self._factory = factory if strategy is not None else null_actor
        self._args = args if strategy is not None else ()
        self._capacity = capacity
        self._strategy = strategy
        self._state = STARTING
        self._actor = NOBODY
        self._waiting = 0
        self._children: dict[LiveMailbox[Any], None] | None = None
        self._tasks = ()
        self._timers = ()
        self._watchers = ()
        self._watching: SmallSet[Address[Any]] = ()
        self._callbacks: tuple[Callable[[StopReason], object], ...] = ()
        self._failures: list[float] | None = None

    def refusal(self) -> DeadLetterReason:
        """Return with what a message is refused once this actor is stopping; for this package."""
        return DeadLetterReason.STOPPED

    def end_reason(self) -> StopReason:
        """Return why this actor ended; for this package, and only a stopped one knows."""
        raise LifecycleError(f"{self.address.name} has not stopped")

    def lose(self, message: object, reason: DeadLetterReason | None) -> None:
        """Give up a message that was accepted; for this package."""
        self.system.dead_letters.post(self.address, message, reason or self.address.drop_reason)

    def watched_ended(self, address: Address[Any], reason: StopReason, /) -> None:
        """Take notice that a watched actor has ended; for this package."""
        self._watching = removed(self._watching, address)
        self.system.dispatcher.notify(self, Stopped(address, reason))

    def empty(self) -> None:
        """Let go of everything at the end of the life; for this package.

        The cell may be kept by whoever wrote the actor. Emptied, it keeps nothing else in memory, and
        what it held is freed without the help of the garbage collector.
        """
        self._actor = NOBODY
        self._factory = null_actor
        self._args = ()
        self._watchers = ()
        self._parent = self._strategy = self._children = self._failures = None
