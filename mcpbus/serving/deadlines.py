"""The deadlines of all connections of a server, which one task watches, and a socket whose writes have a deadline.

A cancel scope or a timer for each request would cost a tenth of a short one. So a connection says until when it may wait, and the task
looks at all of them when the first of these times has come.
"""

import errno
import logging
import math
import os
import socket
import struct
from contextlib import suppress
from typing import Final, Protocol

import trio

from mcpbus.core.limits import SLICE_BYTES
from mcpbus.transports.request_body import LAST_LOOK_SECONDS

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


GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
"""What a connection raises whose client has gone, or that was closed here."""

READ_BYTES: Final = 64 * 1024
"""How much is read from one at a time."""

# A deadline renewed for each slice lets a large answer to a slow client take its time, as long as it moves.

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_CLOSED = -1
"""No socket has this descriptor. That of a closed one may be another connection's, whose bytes are not for us."""


class DeadlineStream(trio.abc.Stream):
    """A `trio.SocketStream` whose `send_all` fails once the peer accepts less than 16 KiB in `seconds`.

    `TlsStream` encrypts on top of it, so that a handshake and an alert are bound by it too. Sending is shielded from cancellation
    (half a frame would corrupt what follows), which is why the deadline and `abort` act in here. Most of what is sent
    fits into the kernel's buffer at once; then it costs one system call, and neither a scope nor a deadline.

    Attributes:
        descriptor: The socket's file descriptor, also once it is closed.
        secure: Whether it carries TLS.
        aborted: Whether `abort` was called.
        stalled: Whether the peer accepted too little for too long.
    """

    secure = False

    def __init__(self, stream: trio.SocketStream, seconds: float) -> None:
        self._stream = stream
        self.descriptor = self._open = stream.socket.fileno()
        self._seconds = seconds
        self._sending: trio.CancelScope | None = None
        self.aborted = False
        self.stalled = False
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # What the kernel has taken is not at the peer yet. Linux resets the connection if nobody takes it there; later
            # than we do, because our own deadline is the one that is counted.
            with suppress(OSError):  # a Unix socket
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2000 * seconds))

    @property
    def socket(self) -> trio.socket.SocketType:
        """The socket below."""
        return self._stream.socket

    def abort(self) -> None:
        """Reset the connection: a write under way and all later ones raise `trio.BrokenResourceError` at once."""
        self.aborted = True
        if self._sending is not None:
            self._sending.cancel()
        self._reset()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`: a schedule point always, and no cancel point. One task at a time may send.

        Raises:
            trio.BrokenResourceError: The peer is gone, or accepted too little for too long, or `abort` was called. The
                connection has been reset, so that a pending read ends as well.
            trio.ClosedResourceError: The stream was closed on this side.
        """
        if self.aborted or self.stalled:
            raise trio.BrokenResourceError("the connection was reset")
        sent = self.send_now(data)
        if sent == len(data):
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._send_patiently(data, sent)

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Give the kernel what it takes without waiting, and return how much that was. No schedule point.

        Raises:
            trio.BrokenResourceError: As for `send_all`.
            trio.ClosedResourceError: As for `send_all`.
        """
        try:
            return os.write(self._open, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise translate(error) from error

    async def _send_patiently(self, data: bytes | bytearray | memoryview, sent: int) -> None:
        with memoryview(data) as view:
            for start in range(sent, len(view), SLICE_BYTES):
                await self._send_slice(view[start : start + SLICE_BYTES])

    async def _send_slice(self, view: memoryview) -> None:
        until = trio.current_time() + self._seconds
        while view:
            with trio.CancelScope(shield=True, deadline=until) as self._sending:
                await self._stream.wait_send_all_might_not_block()
            if self.aborted:
                raise trio.BrokenResourceError("the connection was reset")
            # Once more when the time is over, too. The peer may have taken this much although the kernel, which waits for a third
            # of its buffer to be free, has not told of it; or nobody has looked, as when the process was stopped.
            view = view[self.send_now(view) :]
            if view and self._sending.cancelled_caught:
                self.stalled = True
                self._reset()
                raise trio.BrokenResourceError(f"the peer accepted nothing for {self._seconds:g} s")

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket is writable."""
        await self._stream.wait_send_all_might_not_block()

    def receive_now(self, max_bytes: int = READ_BYTES) -> bytes | None:
        """Take what has arrived, if something has: `b""` at the peer's end, None if there is nothing yet. No schedule point.

        Raises:
            trio.BrokenResourceError: As for `receive_some`.
            trio.ClosedResourceError: As for `receive_some`.
        """
        try:
            return os.read(self._open, max_bytes)
        except BlockingIOError:
            return None
        except OSError as error:
            raise translate(error) from error

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive what has arrived, at most `max_bytes`; `b""` at the peer's end.

        Mostly nothing has, so that is waited for, and not asked the kernel first.

        Raises:
            trio.BrokenResourceError: The connection was reset.
            trio.ClosedResourceError: The stream was closed on this side.
        """
        while True:
            await self._wait_readable()
            data = self.receive_now(max_bytes or READ_BYTES)
            if data is not None:
                return data

    async def _wait_readable(self) -> None:
        if self._open == _CLOSED:
            raise trio.ClosedResourceError("the connection was closed")
        await trio.lowlevel.wait_readable(self._open)

    def cut(self) -> None:
        """Note that the last answer is not whole. A stream in cleartext has no way to report that to its peer."""

    def end_sending(self) -> None:
        """Tell the peer that nothing more is said, if it is there. No schedule point."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close the socket."""
        self._open = _CLOSED
        await self._stream.aclose()

    def close(self) -> None:
        """Close the socket. No schedule point."""
        self._open = _CLOSED
        self.socket.close()

    def _reset(self) -> None:
        # Without a reset the kernel keeps megabytes for a peer that has stopped reading them.
        if self._open != _CLOSED:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.close()


def translate(error: OSError) -> Exception:
    """Return the error of trio for a socket's."""
    if error.errno == errno.EBADF:
        return trio.ClosedResourceError("the connection was closed")
    return trio.BrokenResourceError(f"the connection was lost: {error}")
