"""What the responses of one HTTP/2 connection have to say, and their client has not opened a window for."""

from typing import Final

import trio

from mcpbus.serving.counters import Counters

STREAM_BYTES: Final = 32 * 1024
"""What one response may have waiting here. The rest stays with its application, which waits in `send`."""

CONNECTION_BYTES: Final = 512 * 1024
"""What all responses of a connection may have waiting; beyond it, each may still have `LEAST_BYTES`."""

LEAST_BYTES: Final = 2 * 1024
"""What no other response can keep one from having here, so that it gets on once its window is open."""


class StalledError(Exception):
    """The client opened no window for the whole write deadline."""


class Budget:
    """What all responses of one connection have waiting.

    Args:
        counters: Where all connections together are counted.
    """

    __slots__ = ("_counters", "used")

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.used = 0

    def change(self, size: int) -> None:
        """Count bytes that came, or went."""
        self.used += size
        self._counters.buffered += size


class ResponseBuffer:
    """One response's part of it.

    hypercorn's buffer lets its writer go on whenever little was taken, and nothing at all is taken from a stream without
    a window; one client that stalls then makes it grow without end.

    Args:
        budget: The connection's.
        seconds: How long the client may take nothing.
    """

    __slots__ = ("_budget", "_data", "_moved", "_seconds", "closed", "complete", "tunnel")

    def __init__(self, budget: Budget, seconds: float) -> None:
        self._budget = budget
        self._seconds = seconds
        self._data = bytearray()
        self._moved = trio.lowlevel.ParkingLot()
        self.complete = False  # nothing more will be added
        self.closed = False  # its end was sent, or it was reset
        self.tunnel = False  # its stream goes both ways, and does not end with it

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: memoryview) -> int:
        """Add as much as there is room for, and return how many bytes that is."""
        own = len(self._data)
        room = min(STREAM_BYTES - own, CONNECTION_BYTES - self._budget.used)
        size = min(max(room, LEAST_BYTES - own, 0), len(data))
        self._data += data[:size]
        self._budget.change(size)
        return size

    def take(self, size: int) -> bytes:
        """Take at most `size` bytes out."""
        data = bytes(self._data[:size])
        if data:
            del self._data[:size]
            self._budget.change(-len(data))
            self._moved.unpark_all()
        return data

    def close(self) -> None:
        """Say that the response has ended in one way or another, and forget what is left of it."""
        self.complete = self.closed = True
        self._budget.change(-len(self._data))
        self._data.clear()
        self._moved.unpark_all()

    async def moved(self) -> None:
        """Wait until something was taken, or the end was sent.

        Raises:
            StalledError: Nothing was taken for the write deadline.
        """
        with trio.move_on_after(self._seconds) as limit:
            await self._moved.park()
        if limit.cancelled_caught:
            raise StalledError
