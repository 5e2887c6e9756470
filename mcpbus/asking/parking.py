"""Calls that wait for their client to come back, and rounds that can be used once."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mcpbus.asking.state import RoundState, Sealer
from mcpbus.protocol.errors import ProtocolError, invalid_params

if TYPE_CHECKING:
    from mcpbus.call import Carrier

_CONSUMED_PER_CALL = 16


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
        self._consumed: OrderedDict[bytes, None] = OrderedDict()

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
        # What lapses is refused by its date, so the oldest names may be forgotten; a call that has gone on is not
        # here to be found again, so forgetting is harmless unless it would be replayed.
        self._consumed[state.round] = None
        if len(self._consumed) > self._limit * _CONSUMED_PER_CALL:
            self._consumed.popitem(last=False)
        return None if parked is None else self.leave(state.call)

    def evict_all(self) -> None:
        """End every call that waits."""
        while self._calls:
            self._calls.popitem(last=False)[1].evict()


def _used() -> ProtocolError:
    return invalid_params(
        "this round was used already; a retry brings back the newest state - at `params.requestState`"
    )
