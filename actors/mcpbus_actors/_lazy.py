# ruff: noqa: SLF001 - a lazy actor is both sides of its cell
"""Actors that have a cell only once somebody needs their address.

Much of what could be an actor ends before anybody but its maker has heard of it. Until then it is dormant: it has neither a
cell nor an address, and what its maker tells it is handled at once, in the maker's stack, as an idle actor would handle it. To
ask for its address is to activate it, and from then on it is an actor like any other.

Nobody can tell the difference. In both states one message is handled at a time, and meanwhile the dispatcher is busy, so that
what is told to other actors, and to this one by its address, waits for the end of the turn; what it raises goes the same way
through the supervisor. But a dormant actor is told in the middle of its maker's turn, where an active one would have to wait
for the end of that. So only its maker, which knows that, may `LazyActor.tell` it anything; whoever else wants to reach it asks
for its address.

Without this file's help, such an actor would be told everything by its address, and mean the same.
"""

import enum
import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec
import trio

from mcpbus_actors import _ending, _supervision
from mcpbus_actors._address import Address
from mcpbus_actors._context import ActorContext, dead_address
from mcpbus_actors._errors import LifecycleError
from mcpbus_actors._mailbox import CAPACITY
from mcpbus_actors._messages import DeadLetterReason, StopReason
from mcpbus_actors._states import STOPPED
from mcpbus_actors.system import ActorSystem

M = TypeVar("M")

logger = logging.getLogger("mcpbus.actors")


class _Activation(enum.Enum):
    """How far a lazy actor has come that is not just dormant."""

    AT_WORK = enum.auto()
    """Dormant, and at work on a message."""
    STOPPING = enum.auto()
    """As before, and ends with that message."""
    ACTIVE = enum.auto()
    """It has a cell; the rest of its life is the cell's."""
    STOPPED = enum.auto()
    """It ended without ever having had one."""


_AT_WORK: Final = _Activation.AT_WORK
_STOPPING: Final = _Activation.STOPPING
_ACTIVE: Final = _Activation.ACTIVE
_STOPPED: Final = _Activation.STOPPED
_ENDED: Final = StopReason.STOPPED


class LazyActor(msgspec.Struct, Generic[M], eq=False):
    """The base of an actor that is dormant until its address is asked for; see the module.

    Attributes:
        system: Where it lives.
        maker: Another lazy actor that is activated before this one, such as to watch it; None if there is no need.
    """

    system: ActorSystem
    maker: "LazyActor[Any] | None" = None
    _life: _Activation | None = None  # it is dormant
    _cell: ActorContext[M] | None = None
    _address: Address[M] | None = None
    _behind: bool = False  # the dispatcher, as will be said again at the end of the present turn

    # -- what an actor is made of ----------------------------------------------------------------

    HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {}
    """What handles a message, by its type. What takes a cell, such as a timer, is done with `cell`."""

    def handle(self, message: M, /) -> None:
        """Handle a message; see `mcpbus_actors.Actor`."""
        self.HANDLERS[type(message)](self, message)

    def activated(self, cell: ActorContext[M], /) -> None:
        """Begin what takes a cell. If it raises, the actor has ended as if it could not be spawned."""

    def ended(self, reason: StopReason, /) -> None:
        """Let go of everything, whatever ended it; see `ActorContext.on_stop`."""

    @property
    def capacity(self) -> int:
        """Messages that may wait for it; see `ActorContext.spawn`."""
        return CAPACITY

    # -- what others see -------------------------------------------------------------------------

    @property
    def address(self) -> Address[M]:
        """Where it can be reached, by anybody. It is active from now on."""
        if self._address is None:
            self._activate()
        assert self._address is not None  # noqa: S101 - it has been spawned
        return self._address

    @property
    def active(self) -> bool:
        """Whether it has a cell, or had one."""
        return self._cell is not None

    @property
    def stopped(self) -> bool:
        """Whether it has stopped, or is about to; see `Address.stopped`."""
        return self.address.stopped if self._life is _ACTIVE else self._life in {_STOPPING, _STOPPED}

    @property
    def at_rest(self) -> bool:
        """Whether it is not at work, and would be at once on what its maker told it: the maker may as well do that itself."""
        return self._life is None or (
            self._life is _ACTIVE and not self.system.dispatcher.busy and not self.address.stopped
        )

    @trio.lowlevel.enable_ki_protection
    def tell(self, message: M) -> DeadLetterReason | None:
        """Give it a message, as its maker; see `Address.tell`."""
        if self._life is not None:
            return self.address.tell(message)
        dispatcher = self.system.dispatcher
        busy, dispatcher.busy = dispatcher.busy, True
        self._life = _AT_WORK
        try:
            self.HANDLERS[type(message)](self, message)
        except BaseException as error:  # noqa: BLE001 - the supervisor decides; nothing is swallowed
            self._raised(message, error)
        if self._life is _AT_WORK:
            self._life = None
        else:
            self._end_turn()
        if not busy:
            if dispatcher.queue or dispatcher.urgent:
                dispatcher.drain()
            else:
                dispatcher.busy = False
        return None

    @trio.lowlevel.enable_ki_protection
    def take(self, message: M) -> bool:
        """Handle a message at once if it is dormant, for its maker, that is at work itself: the turn is the maker's.

        Returns:
            Whether it was dormant. Otherwise it is to be told by its address.
        """
        if self._life is not None:
            return False
        self._life = _AT_WORK
        try:
            self.HANDLERS[type(message)](self, message)
        except BaseException as error:  # noqa: BLE001 - as in `tell`
            self._raised(message, error)
        if self._life is _AT_WORK:
            self._life = None
        else:
            self._end_turn()
        return True

    # -- what it does itself ---------------------------------------------------------------------

    @property
    def cell(self) -> ActorContext[M]:
        """Its powers; see `ActorContext`. It is active from now on.

        Raises:
            LifecycleError: It stopped while it was dormant.
        """
        if self._cell is None:
            if self._life in {_STOPPING, _STOPPED}:
                raise LifecycleError(f"{self.address.name} has stopped and can do nothing any more")
            self._activate()
        assert self._cell is not None  # noqa: S101 - it has been spawned
        return self._cell

    @trio.lowlevel.enable_ki_protection
    def stop(self) -> None:
        """End it after the message that it is at work on; see `ActorContext.stop`."""
        if self._life is None:
            dispatcher = self.system.dispatcher
            busy, dispatcher.busy = dispatcher.busy, True
            self._end()
            if not busy:
                if dispatcher.queue or dispatcher.urgent:
                    dispatcher.drain()
                else:
                    dispatcher.busy = False
        elif self._life is _AT_WORK:
            self._life = _STOPPING
        elif self._cell is not None:
            self._cell.stop()

    # -- between the two states ------------------------------------------------------------------

    def _activate(self) -> None:
        life, dispatcher = self._life, self.system.dispatcher
        if life is _STOPPED:
            self._address = dead_address(self.system, StopReason.STOPPED)
            return
        if life is not None and dispatcher.behind:
            # No turns are to be taken for it within its own.
            dispatcher.behind, self._behind = False, True
        if self.maker is not None:
            self.maker.address  # noqa: B018 - it may need this one's, which is there then
        if self._address is None:
            self.system.spawn(_wake, self, capacity=self.capacity)
        if life is _STOPPING:
            self.stop()

    def _raised(self, message: M, error: BaseException) -> None:
        """Have a supervisor decide about what `handle` raised, as about what any actor's raises."""
        try:
            name = self.address.name
        except BaseException:
            logger.exception("%r raised, and could not be activated", self)
            if self._cell is None:  # its system has closed
                self._end_turn()
                return
            name = self._cell.address.name
        cell, dispatcher = self._cell, self.system.dispatcher
        assert cell is not None  # noqa: S101 - it is active, or has ended as it was to be
        dispatcher.accepted += 1
        if cell._state is STOPPED:
            logger.error("%s raised, and has ended already", name, exc_info=error)
            dispatcher.discard(cell, message, DeadLetterReason.FAILED)
        else:
            dispatcher.handled += 1
            _supervision.raised(cell, message, error)

    def _end_turn(self) -> None:
        """Go on as what it has become: active; or end, if it has not yet."""
        if self._life is _ACTIVE:
            if self._behind:
                self._behind, self.system.dispatcher.behind = False, True
        elif self._life is not _STOPPED:
            self._end()

    def _end(self) -> None:
        """End without ever having had a cell."""
        self._life = _STOPPED
        try:
            self.ended(_ENDED)
        except BaseException as error:  # noqa: BLE001 - reported
            _ending.callback_raised(self.system, self.address, error)


def _wake(cell: ActorContext[M], lazy: LazyActor[M]) -> LazyActor[M]:
    lazy._cell, lazy._address, lazy._life = cell, cell.address, _ACTIVE
    cell.on_stop(lazy.ended)
    lazy.activated(cell)
    return lazy
