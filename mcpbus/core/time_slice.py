"""How long tasks that never have to wait go on before they let others run."""

from typing import Final

import trio

from mcpbus.core.services import BusServices

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
