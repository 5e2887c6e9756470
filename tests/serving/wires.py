"""The server's end of a connection in memory, which can be polled, and takes no more than a test has it take."""

import math
from contextlib import suppress

import trio
import trio.testing

from mcpbus.serving.readiness import Readiness
from mcpbus.testing.over_http1 import WireReactor


class Wire(trio.abc.Stream):
    """The server's end of a connection in memory, which can be polled.

    Attributes:
        near: The client's end.
        room: How many more bytes are taken without waiting.
        closed: Whether the server has closed it.
    """

    def __init__(self, reactor):
        self._reactor = reactor
        self._to_client = trio.testing.MemoryReceiveStream()
        self._from_client = trio.testing.MemorySendStream(self._said, None, self._look)
        self.near = trio.StapledStream(self._from_client, self._to_client)
        self._data = b""
        self._ended = False
        self._more_room = trio.lowlevel.ParkingLot()
        self.room = math.inf
        self.closed = False

    def _look(self):
        self._reactor.look()

    async def _said(self):
        if self.closed:
            raise trio.BrokenResourceError("the server has closed the connection")
        self._reactor.look()

    @property
    def readable(self):
        """Whether there is something to read, if only the end."""
        return self.ended or bool(self._data)

    @property
    def ended(self):
        """Whether the client has left, whatever there is to read."""
        with suppress(trio.WouldBlock):
            while not self._ended:
                data = self._from_client.get_data_nowait()
                self._data += data
                self._ended = not data
        return self._ended

    def put(self, data):
        """Have the client say something, without waiting."""
        if not self.ended:
            self._data += data
            self._reactor.look()

    def make_room(self, size=math.inf):
        """Take so many more bytes."""
        self.room += size
        self._more_room.unpark_all()

    def receive_now(self, max_bytes=64 * 1024):
        if self.closed:
            raise trio.ClosedResourceError
        if not self.readable:
            return None
        data, self._data = self._data[:max_bytes], self._data[max_bytes:]
        return data

    async def receive_some(self, max_bytes=None):
        await trio.lowlevel.checkpoint()
        while not self.closed and not self.readable:
            await self._reactor.changed()
        return self.receive_now(max_bytes or 64 * 1024)

    def send_now(self, data):
        if self.closed:
            raise trio.ClosedResourceError
        sent = data[: min(self.room, len(data))]
        self.room -= len(sent)
        if not sent:
            return 0
        try:
            self._to_client.put_data(sent)
        except trio.ClosedResourceError:
            raise trio.BrokenResourceError from None
        return len(sent)

    async def send_all(self, data):
        data = data[self.send_now(data) :]
        await trio.lowlevel.checkpoint()
        while data:
            await self._more_room.park()
            data = data[self.send_now(data) :]

    async def wait_send_all_might_not_block(self):
        raise NotImplementedError

    def close(self):
        if not self.closed:
            self.closed = True
            self._to_client.put_eof()
            self._reactor.look()
            self.make_room()

    async def aclose(self):
        self.close()
        await trio.lowlevel.checkpoint()


class Unwatched(Readiness):
    """A connection that the kernel does not wait for: a task reads it."""

    def watch(self, turn):
        return False


class UnwatchedReactor(WireReactor):
    """Waits for no connection."""

    def watch(self, connection, turn):
        raise OSError("a connection in memory that cannot be polled")
