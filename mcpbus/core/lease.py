"""For how long a process surely has its sessions, where another one goes on with them if it is not heard of."""

import math
import time
from typing import Final

import msgspec
import trio
from mcpbus_actors import Address

_WITH_SUSPENSION: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed() -> float:
    """Return trio's time, and for how long the machine was suspended besides: trio's clock stands still then, and those of others go on."""
    return trio.current_time() + _suspended()


def _suspended() -> float:
    """Return for how many seconds this machine was suspended, where that is known."""
    if _WITH_SUSPENSION is None:
        return 0.0
    # Between the two looks some time passes as well.
    return round(time.clock_gettime(_WITH_SUSPENSION) - time.clock_gettime(time.CLOCK_MONOTONIC), 2)


class LeaseExtended(msgspec.Struct, frozen=True):
    """The lease lasts again, after it did not."""


class Lease:
    """By which a process has its sessions: while it lasts nobody else speaks to their clients.

    It is extended long before it lapses. Where that fails, another process may have taken sessions over: what is said to their clients waits
    until that is known. What answers requests does not wait, for no other process has those.

    Attributes:
        until: When it lapses, in the time of `elapsed`.
    """

    __slots__ = ("_waiting", "until")

    def __init__(self) -> None:
        self.until = math.inf
        self._waiting: set[Address[object]] = set()

    @property
    def is_valid(self) -> bool:
        """Whether it has not lapsed. It is asked of the clock: who was stopped for a while hears of nothing before."""
        return elapsed() < self.until

    def tell_extended(self, address: Address[object]) -> None:
        """Tell an actor `LeaseExtended` once it lasts again."""
        self._waiting.add(address)

    def extend(self, until: float) -> None:
        """Have it last until a moment: all sessions that the process has are its own."""
        self.until = until
        waiting, self._waiting = self._waiting, set()
        for address in waiting:
            address.tell(LeaseExtended())
