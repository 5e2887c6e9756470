"""How long a task that never waits runs before others get a turn, and how long requests of one kind take."""

from typing import Final

import msgspec
import trio

from mcpbus.core.bus_services import BusServices

SLICE_SECONDS: Final = 0.001
MOST_IN_A_ROW: Final = 64
"""For how long, and for how many things in a row, a task goes on without a schedule point where it need not have one."""


class TimeSlice:
    """Shares what may be done in one turn of the scheduler, a millisecond or 64 calls, among those that would go on.

    A schedule point takes a sixth of the time of a call that is answered at once. Left out, one task that calls in a loop
    would keep all others waiting; and each of many that do so would take as long as one.

    Args:
        bus: Has the clock.
    """

    __slots__ = ("_bus", "_left", "_until", "_waiting")

    def __init__(self, bus: BusServices) -> None:
        self._bus = bus
        self._left = 0
        self._until = float("-inf")
        self._waiting = 0

    async def yield_if_due(self) -> None:
        """Let others run, if that is due. No cancel point."""
        self._left -= 1
        if self._left > 0 and self._bus.clock() < self._until:
            return
        self._waiting += 1
        await trio.lowlevel.cancel_shielded_checkpoint()
        # Those that wait with this one come next, in the same turn, and each begins its part anew.
        share, self._waiting = self._waiting, self._waiting - 1
        self._left = MOST_IN_A_ROW // share
        self._until = self._bus.clock() + SLICE_SECONDS / share


GATHER_SECONDS: Final = 0.00025
"""For how long an answer may wait for others, to be written together with them. What takes longer is waited for once, see `Pace`."""

_LONG_SECONDS: Final = 0.001
"""A turn that takes longer than this has what is said in it written before it ends."""

_DOUBTED: Final = 64
_DOUBTED_LONG: Final = 4
"""For how many turns what was slow once is expected to be slow again; and what was long to be long, which it may have been for
the sake of other processes.
"""


class Pace(msgspec.Struct):
    """How long turns take in which the same is asked for. As long as nothing is known of it, it is expected to be slow.

    Attributes:
        slow: For how many turns it is still expected to be slow. If for none, answers that are there wait for it.
        long: The same, of turns so slow that what is said in one does not wait for its end either.
    """

    slow: int = 1
    long: int = 1

    def mark_slow(self) -> None:
        """Expect the next turn to be slow, since this one seemed to be, perhaps for the sake of other processes."""
        self.slow = max(1, self.slow)

    def took(self, seconds: float) -> None:
        """Note how long a turn took."""
        self.slow = _DOUBTED if seconds > GATHER_SECONDS else max(0, self.slow - 1)
        self.long = _DOUBTED_LONG if seconds > _LONG_SECONDS else max(0, self.long - 1)
