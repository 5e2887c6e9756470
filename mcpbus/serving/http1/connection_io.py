"""One HTTP/1.1 connection as bytes: what is sent and received, and how long each may take."""

import math
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Final, Protocol

import trio

from mcpbus.protocol.principals import Peer
from mcpbus.serving.deadlines import GONE, READ_BYTES, DeadlineStream
from mcpbus.serving.http1.parser import Http1Parser
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.readiness import Readiness
from mcpbus.serving.request_error import too_slow

MOST_AHEAD: Final = 64 * 1024
"""Bytes of later requests that are read while one is served."""


class Http1ConnectionOwner(Protocol):
    """Who accepted a connection."""

    @property
    def peer(self) -> Peer:
        """From where it comes."""

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task of the connection's; what it raises ends the connection."""

    def close(self) -> None:
        """Close the connection, which is over. No schedule point."""

    async def serve_http2(self, data: bytes) -> None:
        """Serve the connection, whose client speaks HTTP/2, and close it.

        Args:
            data: What the client has sent.
        """


class ConnectionPhase(Enum):
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
IDLE: Final = ConnectionPhase.IDLE
SERVING: Final = ConnectionPhase.SERVING


class ConnectionIO:
    """The bytes of a connection.

    Args:
        service: What all connections of a server share.
        stream: The connection.
        owner: Who accepted it.

    Attributes:
        stream: The same.
        requests: What the client has sent.
        options: How it is served.
        peer: From where it comes.
        clock: Tells trio's time.
        doing: What it is at.
        expires: When that takes too long, by trio's clock.
        served: Whether a request was.
        retired: Whether it ends with the request that is under way.
        gone: Whether nothing more can be said to the client.
        closed: Whether it is over.
    """

    __slots__ = (
        "_deadlines",
        "_over",
        "_owner",
        "_receiving",
        "_sending",
        "_socket",
        "clock",
        "closed",
        "doing",
        "expires",
        "gone",
        "options",
        "peer",
        "requests",
        "retired",
        "served",
        "stream",
    )

    def __init__(self, service: HttpServer, stream: trio.abc.Stream, owner: Http1ConnectionOwner) -> None:
        self._deadlines = service.deadlines
        self._owner = owner
        self._socket = stream if isinstance(stream, DeadlineStream) else None
        self._over = False
        self._sending = False
        self._receiving: trio.CancelScope | None = None
        self.clock = service.deadlines.clock
        self.stream = stream
        self.requests = Http1Parser(service.http1_heads)
        self.options = service.options
        self.peer = owner.peer
        self.doing = IDLE
        self.expires = math.inf
        self.served = False
        self.retired = False
        self.gone = False
        self.closed = False

    # -- time ------------------------------------------------------------------------------------

    def quiet_for(self, seconds: float) -> None:
        """Let the connection be quiet for so many seconds; then it expires."""
        # On the path of every call: written out, and below for times that are known.
        deadlines = self._deadlines
        self.expires = time = self.clock() + seconds
        if time < deadlines.next_look:
            deadlines.look_at(time)

    def wait(self, doing: ConnectionPhase, seconds: float) -> None:
        """Be at something for so many seconds at most."""
        self.doing = doing
        self.quiet_for(seconds)

    def wait_for_body(self, until: float) -> None:
        """Be at a body until then at most."""
        self.doing = ConnectionPhase.BODY
        self.expires = until
        if until < self._deadlines.next_look:
            self._deadlines.look_at(until)

    def stop_waiting(self) -> None:
        """Serve a request, for as long as that takes."""
        self.doing = SERVING
        self.expires = math.inf

    # -- bytes -----------------------------------------------------------------------------------

    async def receive(self) -> bytes | None:
        """Wait for what the client sends; nothing once it has gone, None once its time is over.

        What has come is taken first, however late it is: nobody may have looked, as when the process was stopped.
        """
        data: bytes | None = None
        if not self._over:
            try:
                with trio.CancelScope() as self._receiving:
                    try:
                        data = bytes(await self.stream.receive_some(READ_BYTES))
                    except GONE:
                        data = b""
            finally:
                self._receiving = None
        return None if self._over else data

    @property
    def receiving(self) -> bool:
        """Whether a task waits for what the client sends."""
        return self._receiving is not None

    def stop_receiving(self, *, for_good: bool = False) -> None:
        """End what `receive` waits for; `for_good` also what it is asked for later."""
        self._over = self._over or for_good
        if self._receiving is not None:
            self._receiving.cancel()

    async def receive_body(self, until: float) -> int:
        """Wait for more of a body until then, and return how much has come: nothing if the client has gone.

        Raises:
            RequestError: Nothing has come in time.
        """
        self.wait_for_body(until)
        try:
            data = await self.receive()
        finally:
            self.stop_waiting()  # also where the body is given up, but not the connection
        if data is None:
            raise too_slow("body_timeout")
        self.requests.receive(data)
        return len(data)

    async def client_left(self, readiness: Readiness) -> None:
        """Wait until the client has left. What comes meanwhile is kept for the next requests, up to a bound.

        Args:
            readiness: Watches the connection past that.
        """
        while self.requests.waiting < MOST_AHEAD:
            data = await self.receive()
            if not data:
                self.gone = True
                return
            self.requests.receive(data)
        await readiness.client_left()
        self.gone = True

    def receive_now(self, most: int = READ_BYTES) -> bytes | None:
        """Take what has come, so many bytes at most; None if that is nothing yet, and nothing once the client has gone."""
        try:
            data: bytes | None = self.stream.receive_now(most)  # type: ignore[attr-defined]  # whoever gave a reactor knows
        except GONE:
            return b""
        return data

    def send_now(self, data: bytes) -> bytes | None:
        """Send what the client takes at once, and return the rest; None if it has gone."""
        try:
            sent: int = self.stream.send_now(data)  # type: ignore[attr-defined]  # whoever gave a reactor knows
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
                self._sending = True
                await self.stream.send_all(data[sent:])
        except GONE:
            return
        finally:
            self._sending = False
        self.gone = self.closed

    def give_up(self) -> None:
        """End the connection if the client does not take what is being sent: the stream shields a send from cancellation."""
        if self._sending:
            self.close()

    def end_sending(self) -> None:
        """Tell the client that nothing more is said, where that can be told while it is listened to."""
        if self._socket is not None:
            self._socket.end_sending()

    def close(self) -> None:
        """End the connection. Harmless once that was done. No schedule point."""
        if not self.closed:
            self.closed = True
            if self.gone and self._socket is not None:
                self._socket.cut()
            self._owner.close()
