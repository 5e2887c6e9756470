"""What one HTTP/2 response has to say and its client has not opened a window for."""

import trio

from mcpbus.serving.hypercorn import BufferCompleteError

_HIGH_WATER = 32 * 1024
_LOW_WATER = _HIGH_WATER // 2


class StalledError(Exception):
    """The client opened no window for the whole write deadline."""


class ResponseBuffer:
    """hypercorn's buffer of a stream, with a backpressure that holds and a deadline.

    hypercorn's lets its writer go on whenever little was taken, and nothing at all is taken from a stream without a
    window; one client that stalls then makes it grow without end. And it lets the response end before its END_STREAM
    is sent, so that a GOAWAY can come between.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._data = bytearray()
        self._complete = False
        self._closed = False
        self._moved = trio.lowlevel.ParkingLot()

    @property
    def complete(self) -> bool:
        """Whether the response has ended and all of it was taken."""
        return self._complete and not self._data

    def set_complete(self) -> None:
        """Say that nothing more will come."""
        self._complete = True

    async def push(self, data: bytes) -> None:
        """Add to the response; waits while more than 32 KiB lie untaken.

        Raises:
            BufferCompleteError: The stream has ended.
            StalledError: Nothing was taken for the write deadline.
        """
        if self._complete:
            raise BufferCompleteError
        self._data += data
        if len(self._data) >= _HIGH_WATER:
            while len(self._data) >= _LOW_WATER and not self._closed:
                await self._wait()

    async def drain(self) -> None:
        """Wait until all was taken, and if the response is complete, until its end was sent.

        Raises:
            StalledError: Nothing was taken for the write deadline.
        """
        while (self._data or self._complete) and not self._closed:
            await self._wait()

    async def pop(self, max_length: int) -> bytes:
        """Take at most `max_length` bytes, as many as the window allows."""
        data = bytes(self._data[:max_length])
        del self._data[:max_length]
        if data:
            self._moved.unpark_all()
        return data

    async def close(self) -> None:
        """Say that the stream has ended: its end was sent, or it was reset."""
        self._complete = self._closed = True
        self._data.clear()
        self._moved.unpark_all()

    async def _wait(self) -> None:
        with trio.move_on_after(self._seconds) as limit:
            await self._moved.park()
        if limit.cancelled_caught:
            raise StalledError
