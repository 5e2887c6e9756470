"""Calls that wait for their client to come back, and rounds that can be used once."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mcpbus.asking.state import RoundState, Sealer
from mcpbus.protocol.errors import ProtocolError, invalid_params

if TYPE_CHECKING:
    from mcpbus.call import Carrier

_MOST_CONSUMED = 100_000


class Parked(msgspec.Struct, frozen=True):
    """A call that waits.

    Attributes:
        round: The round that goes on with it.
        carrier: What its context speaks through.
        evict: Ends it.
    """

    round: bytes
    carrier: "Carrier"
    evict: Callable[[], object]


class Parking:
    """The calls of one bus that wait, oldest first.

    Nothing assumes that a retry comes: each call has its own time limit, and beyond `limit` the oldest goes.

    Args:
        sealer: Seals their states.
        limit: How many may wait.
        timeout: For how many seconds each waits, and its state is good.
    """

    def __init__(self, sealer: Sealer, limit: int, timeout: float) -> None:
        self.sealer = sealer
        self.timeout = timeout
        self._limit = limit
        self._calls: OrderedDict[str, Parked] = OrderedDict()
        self._consumed: OrderedDict[bytes, float] = OrderedDict()  # used rounds, and when they lapse
        self._forgotten = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def park(self, call: str, parked: Parked) -> None:
        """Enter a call."""
        self._calls[call] = parked
        if len(self._calls) > self._limit:
            self.leave(next(iter(self._calls))).evict()

    def leave(self, call: str) -> Parked:
        """Take a call out.

        Raises:
            KeyError: It is not here.
        """
        return self._calls.pop(call)

    def discard(self, call: str) -> None:
        """Take a call out, if it is here."""
        self._calls.pop(call, None)

    def claim(self, state: RoundState) -> Parked | None:
        """Use up a round, and return the call that waits for it; None if that is gone.

        Raises:
            ProtocolError: -32602: the round was used before.
        """
        parked = self._calls.get(state.call)
        if state.round in self._consumed or (parked is not None and parked.round != state.round):
            raise _used()
        if parked is None and state.expires <= self._forgotten:
            # Whether it was used is not known any more; an effect must not happen twice.
            raise _used()
        self._consume(state)
        return None if parked is None else self.leave(state.call)

    def _consume(self, state: RoundState) -> None:
        consumed, now = self._consumed, self.sealer.now()
        consumed[state.round] = state.expires
        while (expires := next(iter(consumed.values()))) < now or len(consumed) > _MOST_CONSUMED:
            consumed.popitem(last=False)
            # A state that has lapsed is refused by its date. Of the others only the dates are kept.
            if expires >= now:
                self._forgotten = max(self._forgotten, expires)

    def evict_all(self) -> None:
        """End every call that waits."""
        while self._calls:
            self._calls.popitem(last=False)[1].evict()


def _used() -> ProtocolError:
    return invalid_params(
        "this round was used already; a retry brings back the newest state - at `params.requestState`"
    )
