"""Messages of servers that are being read: the program that passes them on counts their bytes, and ends the largest if it has too much."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import attrs

from mcpbus.client.errors import DisconnectedError

LONG_BYTES: Final = 256 * 1024
"""Bytes from which on a message counts while it is read, and until its result is decoded."""
_TOO_MUCH: Final = "too much waits for clients and upstream servers"


class Holding(Protocol):
    """A count of bytes in memory."""

    def hold_now(self, size: int) -> None:
        """Count so many bytes from now on."""

    def close(self) -> None:
        """Count nothing any more."""


OpenHolding = Callable[[Callable[[], object]], Holding]
"""Opens a count. Takes a function that gives the bytes up, and is called where there are too many."""


@attrs.define(eq=False)
class Readings:
    """The messages that one client reads.

    Attributes:
        open: Opens a count of bytes; None if no program counts them.
    """

    open: OpenHolding | None = None

    @contextmanager
    def reading(self, give_up: Callable[[], object]) -> Iterator["Reading"]:
        """Count a message until the block ends."""
        reading = Reading(self, give_up)
        try:
            yield reading
        finally:
            reading.close()


class Reading:
    """One message that is being read, or one result that waits until it is decoded.

    Args:
        readings: The messages of its client.
        give_up: Drops the bytes. Called at most once.

    Attributes:
        failure: The error if the bytes were given up; None otherwise.
    """

    __slots__ = ("_give_up", "_holding", "_readings", "failure")

    def __init__(self, readings: Readings, give_up: Callable[[], object]) -> None:
        self._readings = readings
        self._give_up = give_up
        self._holding: Holding | None = None
        self.failure: DisconnectedError | None = None

    def hold(self, size: int) -> None:
        """Count so many bytes from now on. This message, or others, may be given up before this returns."""
        if self._holding is None:
            if size < LONG_BYTES or self._readings.open is None or self.failure is not None:
                return
            self._holding = self._readings.open(self._drop)
        self._holding.hold_now(size)

    def close(self) -> None:
        """Count nothing any more."""
        holding, self._holding = self._holding, None
        if holding is not None:
            holding.close()

    def _drop(self) -> None:
        self.failure = DisconnectedError(_TOO_MUCH)
        self._give_up()
        self.close()
