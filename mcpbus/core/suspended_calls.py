"""Calls that wait for their client to come back, and rounds that can be used once."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

import msgspec

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.shares import NoRoomError, Shares
from mcpbus.protocol.errors import ProtocolError, invalid_params
from mcpbus.protocol.principals import BoundPrincipal
from mcpbus.protocol.request_state import Binding, RoundState, StateSealer

T = TypeVar("T")

_MOST_CONSUMED = 100_000


class SuspendedCall(msgspec.Struct, Generic[T], frozen=True):
    """A call that waits.

    Attributes:
        round: The round that goes on with it.
        call: The call.
        principal: Who alone may carry it on.
        evict: Ends it.
        owner: To whom it is counted.
    """

    round: bytes
    call: T
    principal: object
    evict: Callable[[], object]
    owner: Hashable = None


class SuspendedCalls(Generic[T]):
    """The calls of one bus that wait, oldest first.

    Nothing assumes that a retry comes: each call has its own time limit, and beyond `limit` the oldest goes of whoever has
    most.

    Args:
        sealer: Seals their states.
        limit: How many may wait.
        timeout: For how many seconds each waits, and its state is good.
        reached: Where it is noted that there were more.
    """

    def __init__(
        self, sealer: StateSealer, limit: int, timeout: float, reached: LimitMonitor | None = None
    ) -> None:
        self.sealer = sealer
        self.timeout = timeout
        self._reached = reached
        self._shares: Shares[str] = Shares(limit)
        self._calls: dict[str, SuspendedCall[T]] = {}
        self._consumed: OrderedDict[bytes, float] = OrderedDict()  # used rounds, and when they lapse
        self._forgotten = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the calls that wait, oldest first."""
        return iter([suspended.call for suspended in self._calls.values()])

    def park(self, call: str, parked: SuspendedCall[T]) -> None:
        """Enter a call."""
        if call not in self._calls and not self._make_room(parked.owner):
            parked.evict()
            return
        self._calls[call] = parked
        self._shares.leave(call)
        self._shares.enter(parked.owner, call)

    def _make_room(self, owner: Hashable) -> bool:
        """Make room for one more call, and return whether there is some: not where all others have but one, too."""
        try:
            displaced = self._shares.make_room(owner)
        except NoRoomError:
            self._note(owner)
            return False
        if displaced is not None:
            gone = self._calls.pop(displaced)
            self._note(gone.owner)
            gone.evict()
        return True

    def _note(self, owner: Hashable) -> None:
        if self._reached is not None:
            self._reached.note("max_suspended_calls", owner, "a call that waited for its client was given up")

    def leave(self, call: str) -> SuspendedCall[T]:
        """Take a call out.

        Raises:
            KeyError: It is not here.
        """
        parked = self._calls.pop(call)
        self._shares.leave(call)
        return parked

    def discard(self, call: str) -> None:
        """Take a call out, if it is here."""
        if call in self._calls:
            self.leave(call)

    def open(self, text: object, binding: Binding) -> RoundState:
        """Open the state of a round; as `StateSealer.open`."""
        return self.sealer.open(text, binding, self._owner_of)

    def _owner_of(self, call: str) -> BoundPrincipal | None:
        parked = self._calls.get(call)
        return None if parked is None else BoundPrincipal(parked.principal)

    def claim(self, state: RoundState) -> SuspendedCall[T] | None:
        """Use up a round, and return the call that waits for it; None if that is gone.

        Raises:
            ProtocolError: -32602: the round was used before.
        """
        parked = self._calls.get(state.call)
        if state.round in self._consumed or (parked is not None and parked.round != state.round):
            raise round_used()
        if parked is None and state.expires <= self._forgotten:
            # Whether it was used is not known any more; an effect must not happen twice.
            raise round_used()
        self._consume(state)
        return None if parked is None else self.leave(state.call)

    def give_back(self, state: RoundState) -> None:
        """Have a round unused that was claimed, and with which nothing was done."""
        self._consumed.pop(state.round, None)

    def _consume(self, state: RoundState) -> None:
        consumed, now = self._consumed, self.sealer.now()
        consumed[state.round] = state.expires
        # It may have lapsed itself, since it was opened.
        while consumed and (next(iter(consumed.values())) < now or len(consumed) > _MOST_CONSUMED):
            _, expires = consumed.popitem(last=False)
            # Only the dates are kept, also of what has lapsed: the clock may be set back.
            self._forgotten = max(self._forgotten, expires)

    def evict_all(self) -> None:
        """End every call that waits."""
        for call in tuple(self._calls):
            self.leave(call).evict()


def round_used() -> ProtocolError:
    """Return the error to answer with where a round was used before."""
    return invalid_params(
        "this round was used already; a retry brings back the newest state - at `params.requestState`"
    )
