"""The deadlines of all connections of a service, watched by one task.

A cancel scope or a timer for each request would cost a tenth of a short one. So a connection says until when it may wait, and
all of them are looked at when the first of these times has come.
"""

import logging
import math
from typing import Final, Protocol

import trio

from mcpbus.transports.unfinished import LAST_LOOK_SECONDS

_logger = logging.getLogger("mcpbus.serving")

# How late a deadline may be noticed, as a part of the shortest one, and in seconds at least and at most.
_PRECISION: Final = 0.05
_FINEST: Final = 0.001
_COARSEST: Final = 1.0
_LATE_SECONDS: Final = 1.0
"""Past a look at the deadlines: nobody else has had a turn either."""


class Expiring(Protocol):
    """What has a deadline, which it may move."""

    @property
    def expires(self) -> float:
        """Until when it may wait, by trio's clock."""

    def expire(self) -> None:
        """End what is waited for. No schedule point."""

    def lose(self) -> None:
        """End altogether. No schedule point."""


class Deadlines:
    """Ends what takes too long.

    Args:
        shortest: How many seconds the shortest deadline is away when it is set.

    Attributes:
        clock: Tells trio's time, as `trio.current_time`, which takes two calls more.
        next_look: When `run` looks next, by trio's clock.
    """

    def __init__(self, shortest: float) -> None:
        self.clock = trio.lowlevel.current_clock().current_time
        self.next_look = math.inf
        self._precision = min(_COARSEST, max(_FINEST, _PRECISION * shortest))
        self._sleeping = trio.CancelScope()
        self._watched: set[Expiring] = set()

    def enter(self, connection: Expiring) -> None:
        """Watch a connection's deadlines."""
        self._watched.add(connection)

    def leave(self, connection: Expiring) -> None:
        """Stop to watch them."""
        self._watched.discard(connection)

    def look_at(self, time: float) -> None:
        """Have `run` look at this time too."""
        self.next_look = self._sleeping.deadline = time

    async def run(self) -> None:
        """Watch, until cancelled."""
        while True:
            now = trio.current_time()
            self.next_look = math.inf  # which `look_at` lowers for a connection that was passed already
            soonest = self._end_waits(now)
            # With ten thousand idle connections some deadline passes all the time.
            self.next_look = max(min(soonest, self.next_look), now + self._precision)
            with trio.CancelScope(deadline=self.next_look) as self._sleeping:
                await trio.sleep_forever()
            if trio.current_time() - self.next_look > _LATE_SECONDS:
                await trio.sleep(LAST_LOOK_SECONDS)  # for those that read: what was waited for may be there

    def lose_all(self) -> None:
        """Lose what is watched. No schedule point."""
        for connection in tuple(self._watched):
            connection.lose()

    def _end_waits(self, now: float) -> float:
        """End what takes too long, and return when the next wait does."""
        soonest = math.inf
        for connection in tuple(self._watched):
            if connection.expires <= now:
                self._expire(connection)
            soonest = min(soonest, connection.expires)
        return soonest

    def _expire(self, connection: Expiring) -> None:
        try:
            connection.expire()
        except Exception:
            _logger.exception("a connection could not be ended in order")
            connection.lose()
