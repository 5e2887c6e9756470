"""Turns of connections, a few in each round of the scheduler.

A round lasts as long as everything that runs in it. If each connection had a turn in each, as many connections as a client can open would
make a round so long that a newcomer, which needs some rounds, waited for seconds.
"""

from typing import Final

import trio

FIRST_TURNS: Final = 8
"""Connections that begin in a round, which takes about 0.5 ms for each."""

MORE_TURNS: Final = 16
"""Further turns in a round, of connections that have more to do. Each may start a handler, which takes about 0.2 ms."""


class TurnLine:
    """A line of connections that wait for a turn.

    Args:
        most: The turns in one round.
    """

    __slots__ = ("_free", "_line")

    def __init__(self, most: int) -> None:
        self._free = most
        self._line = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        """Wait for a round with a free turn. A schedule point always. A cancelled task leaves the line."""
        if self._free:
            self._free -= 1
            try:
                await trio.lowlevel.checkpoint()
            finally:
                self._hand_on()
        else:
            await self._line.park()  # until another one hands its turn on
            self._hand_on()

    def _hand_on(self) -> None:
        """Let the next connection have this turn in the next round."""
        if self._line:
            self._line.unpark()
        else:
            self._free += 1
