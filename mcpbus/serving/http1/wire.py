"""One HTTP/1.1 connection of the lane as bytes: what is sent and received, how long each may take, and how it ends."""

import math
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from mcpbus.protocol.owners import Peer
from mcpbus.serving.deadline_stream import DeadlineStream
from mcpbus.serving.http1.encoder import CLOSE, encode_answer
from mcpbus.serving.http1.head import RequestError
from mcpbus.serving.http1.parser import Requests

if TYPE_CHECKING:
    from mcpbus.serving.http1.lane import Lane

READ_BYTES: Final = 64 * 1024
GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


class Owner(Protocol):
    """Who accepted a connection."""

    @property
    def peer(self) -> Peer:
        """From where it comes."""

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task of the connection's; what it raises ends the connection."""

    def close(self) -> None:
        """Close the connection, which is over. No schedule point."""

    async def hand_over(self, data: bytes) -> None:
        """Serve the connection, which is not for the lane any more, and close it.

        Args:
            data: What the client has sent, from the beginning of a request on.
        """


class Doing(Enum):
    """What a connection is at. All but `SERVING` may be ended from outside."""

    IDLE = auto()
    """Waits for a request."""
    HEAD = auto()
    """Waits for the rest of a head."""
    BODY = auto()
    """Waits for the rest of a body."""
    SERVING = auto()
    """A request is being served."""
    DISCARDING = auto()
    """The answer is out; what the client still sends is thrown away."""


# The members that are named for every request; before Python 3.12 each look-up by a class's name is a search.
IDLE: Final = Doing.IDLE
SERVING: Final = Doing.SERVING


class Http1Wire:
    """The bytes of a connection.

    Args:
        lane: What all connections of a server share.
        stream: The connection.
        owner: Who accepted it.

    Attributes:
        requests: What the client has sent.
        options: How it is served.
        peer: From where it comes.
        expires: When what it is at takes too long, by trio's clock.
        retired: Whether it ends with the request that is under way.
        gone: Whether nothing more can be said to the client.
    """

    __slots__ = (
        "_closed",
        "_doing",
        "_lane",
        "_over",
        "_owner",
        "_receiving",
        "_socket",
        "_stream",
        "expires",
        "gone",
        "options",
        "peer",
        "requests",
        "retired",
    )

    def __init__(self, lane: "Lane", stream: trio.abc.Stream, owner: Owner) -> None:
        self._lane = lane
        self._stream = stream
        self._owner = owner
        self._socket = stream if isinstance(stream, DeadlineStream) else None
        self._over = False
        self._receiving: trio.CancelScope | None = None
        self._closed = False
        self._doing = IDLE
        self.requests = Requests(lane.heads)
        self.options = lane.options
        self.peer = owner.peer
        self.expires = math.inf
        self.retired = False
        self.gone = False

    # -- time ------------------------------------------------------------------------------------

    def quiet_for(self, seconds: float) -> None:
        """Let the connection be quiet for so many seconds; then it expires."""
        # On the path of every call: written out, and below for times that are known.
        lane = self._lane
        self.expires = time = lane.clock() + seconds
        if time < lane.next_look:
            lane.look_at(time)

    def _wait(self, doing: Doing, seconds: float) -> None:
        self._doing = doing
        self.quiet_for(seconds)

    def _wait_for_body(self, until: float) -> None:
        self._doing = Doing.BODY
        self.expires = until
        if until < self._lane.next_look:
            self._lane.look_at(until)

    def _stop_waiting(self) -> None:
        self._doing = SERVING
        self.expires = math.inf

    # -- bytes -----------------------------------------------------------------------------------

    async def receive(self) -> bytes | None:
        """Wait for what the client sends; nothing once it has gone, None once its time is over.

        What has come is taken first, however late it is: nobody may have looked, as when the process was stopped.
        """
        data: bytes | None = None
        if not self._over:
            with trio.CancelScope() as self._receiving:
                try:
                    data = bytes(await self._stream.receive_some(READ_BYTES))
                except GONE:
                    data = b""
        return None if self._over else data

    async def receive_body(self, until: float) -> int:
        """Wait for more of a body until then, and return how much has come: nothing if the client has gone.

        Raises:
            RequestError: Nothing has come in time.
        """
        self._wait_for_body(until)
        try:
            data = await self.receive()
        finally:
            self._stop_waiting()  # also where the body is given up, but not the connection
        if data is None:
            raise too_slow("body_timeout")
        self.requests.receive(data)
        return len(data)

    def send_now(self, data: bytes) -> bytes | None:
        """Send what the client takes at once, and return the rest; None if it has gone."""
        try:
            sent: int = self._stream.send_now(data)  # type: ignore[attr-defined]  # whoever gave a poll knows
        except GONE:
            self.gone = True
            return None
        return data[sent:]

    async def send(self, data: bytes) -> None:
        """Send to the client, if it is there; returns when the kernel has taken all of it."""
        if self.gone:
            await trio.lowlevel.checkpoint()  # whoever sends in a loop is to notice
            return
        self.gone = True  # unless this is sent whole: what comes after a part of it would be misread
        try:
            sent = 0 if self._socket is None else self._socket.send_now(data)
            if sent < len(data):
                await self._stream.send_all(data[sent:])
        except GONE:
            return
        self.gone = self._closed

    # -- the end ---------------------------------------------------------------------------------

    async def _refuse(self, fault: RequestError) -> None:
        """Answer what is no request, and end the connection: where the next one begins is not known."""
        if fault.limit is not None:
            self._lane.note(fault.limit, self.peer, f"a request was answered {fault.status}")
        await self._say(fault)
        await self._linger()

    async def _say(self, fault: RequestError) -> None:
        fields = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        await self.send(encode_answer(fault.status, fields, f"{fault.text}\n".encode(), CLOSE))

    async def _discard_body(self) -> bool:
        """Throw away the rest of a body nobody wanted, and return whether its end came in time."""
        size = 0
        self._wait(Doing.DISCARDING, self.options.unread_body_seconds)
        while True:
            size += len(self.requests.take_body())
            if self.requests.body is None:
                return True
            if size > self.options.unread_body_bytes:
                return False
            data = await self.receive()
            if not data:
                return False
            self.requests.receive(data)

    async def _linger(self) -> None:
        """Wait until the client has read the answer, as far as it may still be sending.

        The kernel resets a connection that is closed with something unread, and the client then loses what it was told.
        """
        if self.gone:
            return
        if self._socket is not None:
            with suppress(OSError):
                self._socket.socket.shutdown(socket.SHUT_WR)
        left = self.options.unread_body_bytes
        self._wait(Doing.DISCARDING, self.options.unread_body_seconds)
        while left > 0:
            data = await self.receive()
            if not data:
                return
            left -= len(data)

    def lose(self) -> None:
        """End in the middle of an answer."""
        self.gone = True
        self._close()

    def _close(self) -> None:
        """End the connection. Harmless once that was done. No schedule point."""
        if not self._closed:
            self._closed = True
            self._lane.leave(self)
            self._let_go()
            self._owner.close()

    def _let_go(self) -> None:
        """Do what else is to be done before the stream is closed."""

    def expire(self) -> None:
        """End what the connection waits for."""
        raise NotImplementedError


def too_slow(limit: str) -> RequestError:
    """Return what to answer when a head or a body does not come in the time that this option sets."""
    return RequestError(408, "the request did not come in time", limit)
