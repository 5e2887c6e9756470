"""Pauses between attempts to reach an upstream server, or to listen to it."""

import math
from typing import Final

import trio

_FIRST: Final = 1.0
_LONGEST: Final = 60.0
"""Seconds before another attempt: twice as many each time, up to this many."""
_LASTING_SECONDS: Final = 60.0
"""After a connection, or a listen, of so many seconds the pauses are short again. A shorter one has merely come and gone."""


class Pauses:
    """The pauses of one task."""

    __slots__ = ("_began", "_next")

    def __init__(self) -> None:
        self._next = _FIRST
        self._began = math.inf

    def began(self) -> None:
        """Note that an attempt has succeeded."""
        self._began = trio.current_time()

    def next(self) -> float:
        """Return the seconds before the next attempt."""
        if trio.current_time() - self._began >= _LASTING_SECONDS:
            self._next = _FIRST
        pause, self._began = self._next, math.inf
        self._next = min(2 * pause, _LONGEST)
        return pause
