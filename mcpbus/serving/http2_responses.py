"""The responses of one HTTP/2 connection, on their way through its windows."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from mcpbus.serving.http2_buffer import Budget, ResponseBuffer
from mcpbus.serving.http2_connection import GuardedH2Connection
from mcpbus.serving.http2_patience import Patience

Fields = list[tuple[bytes, bytes]]

# Of the client's patience budget: that it may answer each frame with a ping and two windows.
_WORTH: Final = 3


class Responses:
    """Sends what the windows allow at once, and the rest in turns, a frame of each response at a time.

    hypercorn sends each piece from a task of its own, in the order of a tree of priorities that a client can fill.

    Args:
        connection: The protocol. What it has to say is flushed by whoever calls here, except in `run`.
        flush: Writes what the connection has to say.
        patience: What the client earns by taking something.
        budget: What may wait.
        seconds: How long a client may take nothing.
    """

    def __init__(
        self,
        connection: GuardedH2Connection,
        flush: Callable[[], Awaitable[None]],
        patience: Patience,
        budget: Budget,
        seconds: float,
    ) -> None:
        self._connection = connection
        self._flush = flush
        self._patience = patience
        self._budget = budget
        self._seconds = seconds
        self._buffers: dict[int, ResponseBuffer] = {}
        self._sendable: dict[int, None] = {}  # in the order of their turns
        self._wake = trio.lowlevel.ParkingLot()

    def open(self, stream_id: int) -> None:
        """Begin a response."""
        self._buffers[stream_id] = ResponseBuffer(self._budget, self._seconds)

    def make_tunnel(self, stream_id: int) -> None:
        """Note that the client's half does not end with ours: it has a WebSocket's closing frame to answer."""
        buffer = self._buffers.get(stream_id)
        if buffer is not None:
            buffer.tunnel = True

    def is_open(self, stream_id: int) -> bool:
        """Whether something can still be said: neither was the end of it, nor has the stream gone."""
        buffer = self._buffers.get(stream_id)
        return buffer is not None and not buffer.complete

    def say_head(self, stream_id: int, fields: Fields) -> None:
        """Say a head, an early one or the last."""
        if self.is_open(stream_id):
            try:
                self._connection.send_headers(stream_id, fields)
            except ProtocolError:
                self.reset(stream_id, ErrorCodes.INTERNAL_ERROR)

    async def say(self, stream_id: int, data: bytes) -> None:
        """Say a part of the body; waits while more of it waits here than may.

        Raises:
            StalledError: The client opened no window for the write deadline.
        """
        buffer = self._buffers.get(stream_id)
        if buffer is None or buffer.complete or not data:
            return
        rest = memoryview(data)
        if not buffer:
            rest = rest[self._send_now(stream_id, rest) :]
        while rest and not buffer.closed:
            rest = rest[buffer.add(rest) :]
            self._let_send(stream_id)
            if rest:
                await buffer.moved()

    async def say_end(self, stream_id: int) -> None:
        """Say that this was all, and wait until that is sent.

        Raises:
            StalledError: The client opened no window for the write deadline.
        """
        buffer = self._buffers.get(stream_id)
        self.say_end_soon(stream_id)
        while buffer is not None and not buffer.closed:
            await buffer.moved()

    async def say_trailers(self, stream_id: int, fields: Fields) -> None:
        """Say the fields after the body, and with them that this was all.

        Raises:
            StalledError: The client opened no window for the write deadline.
        """
        buffer = self._buffers.get(stream_id)
        while buffer:
            await buffer.moved()
        if self.is_open(stream_id):
            self._send_end(stream_id, fields)

    def say_end_soon(self, stream_id: int) -> None:
        """Say that this was all, and have that sent when it can be."""
        buffer = self._buffers.get(stream_id)
        if buffer is not None and not buffer.closed:
            buffer.complete = True
            if buffer:
                self._let_send(stream_id)
            else:
                self._send_end(stream_id)

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Give up a response that has not ended."""
        self._connection.reset(stream_id, code)
        self.forget(stream_id)

    def forget(self, stream_id: int) -> None:
        """Forget a response that has ended, or whose stream has gone; wakes who waits for it."""
        self._sendable.pop(stream_id, None)
        buffer = self._buffers.pop(stream_id, None)
        if buffer is not None:
            buffer.close()

    def forget_all(self) -> None:
        """Forget every response: the connection has gone."""
        for stream_id in list(self._buffers):
            self.forget(stream_id)

    def window_opened(self, stream_id: int | None) -> None:
        """Go on with a response whose window was opened; with all of them if it is the connection's, 0."""
        if stream_id:
            if self._buffers.get(stream_id):
                self._let_send(stream_id)
        else:
            for each, buffer in self._buffers.items():
                if buffer:
                    self._let_send(each)

    async def run(self) -> None:
        """Send what waits as windows allow, until cancelled."""
        while True:
            while self._sendable:
                stream_id = next(iter(self._sendable))
                del self._sendable[stream_id]
                self._send_next(stream_id)
                await self._flush()
            await self._wake.park()

    def _let_send(self, stream_id: int) -> None:
        self._sendable[stream_id] = None
        self._wake.unpark_all()

    def _room(self, stream_id: int) -> int:
        window = self._connection.local_flow_control_window(stream_id)
        return max(0, min(window, self._connection.max_outbound_frame_size))

    def _send_now(self, stream_id: int, data: memoryview) -> int:
        """Send one frame of what was not buffered yet, and return how much that was."""
        try:
            size = min(self._room(stream_id), len(data))
            if size:
                self._connection.send_data(stream_id, bytes(data[:size]))
                if size == len(data):
                    self._patience.earn(_WORTH)
        except ProtocolError:
            self.reset(stream_id, ErrorCodes.INTERNAL_ERROR)
            return 0
        return size

    def _send_next(self, stream_id: int) -> None:
        """Send the next frame of what was buffered, and the end where there is no more."""
        buffer = self._buffers[stream_id]
        try:
            room = self._room(stream_id)
            data = buffer.take(room)
            if data:
                self._connection.send_data(stream_id, data)
        except ProtocolError:
            self.reset(stream_id, ErrorCodes.INTERNAL_ERROR)
            return
        if not buffer or len(data) == self._connection.max_outbound_frame_size:
            # A window that is opened byte by byte is no merit.
            self._patience.earn(_WORTH)
        if buffer.complete and not buffer:
            self._send_end(stream_id)
        elif buffer and data:
            self._sendable[stream_id] = None

    def _send_end(self, stream_id: int, fields: Fields | None = None) -> None:
        try:
            if fields:
                self._connection.send_headers(stream_id, fields, end_stream=True)
            else:
                self._connection.end_stream(stream_id)
            self._patience.earn(_WORTH)
        except ProtocolError:
            self._connection.reset(stream_id, ErrorCodes.INTERNAL_ERROR)
        if not self._buffers[stream_id].tunnel:
            # A request that still goes on has its answer (RFC 9113, section 8.1).
            self._connection.reset(stream_id, ErrorCodes.NO_ERROR)
        self.forget(stream_id)
