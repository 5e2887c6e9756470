"""One HTTP/2 connection: the one place that reads its bytes; `connection_writer` writes them.

What has come is read in turns, in which requests are served that nothing has to be waited for; what they say is written at the
end of the turn. Most turns are taken where all connections are waited for, as those of HTTP/1.1; a task takes them while the client
takes less than it asks for, after it has asked for much at once, and if the connection cannot be polled. What is said later is written at once, or together with what others say in the same turn of the scheduler.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import trio
from mcpbus_actors import EagerTask, Leader

from mcpbus.core.fairness import Pace
from mcpbus.protocol.principals import Peer
from mcpbus.serving.deadlines import GONE, READ_BYTES, DeadlineStream
from mcpbus.serving.http2.connection_writer import ConnectionWriter
from mcpbus.serving.http2.errors import ConnectionFault, ErrorCode
from mcpbus.serving.http2.events import (
    BodyReceived,
    ClientLeaves,
    Event,
    RequestBegun,
    StreamGone,
    WindowOpened,
)
from mcpbus.serving.http2.protocol import Protocol as Http2Protocol
from mcpbus.serving.http2.request_table import Http2RequestTable
from mcpbus.serving.http2.send_scheduler import Http2SendScheduler
from mcpbus.serving.http2.streams import TokenBucket
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.reactor import Reactor
from mcpbus.serving.readiness import Readiness

_MOST_IN_TURN: Final = 32
"""What a client may do before other connections have a turn, with the price of the fields that it sent."""

_MOST_STARTED: Final = 8
"""Tasks that serve its requests, of those that one turn starts: a reset costs the client less than such a task costs us."""

_FAREWELL_SECONDS: Final = 1.0
"""From when a client is told that its idle connection ends until it does. What it asked for before it had read that is refused, as
it may repeat (RFC 9113, section 6.8); a closed connection would have it lose even what it was told."""


class Http2ConnectionOwner(Protocol):
    """Who accepted a connection."""

    @property
    def peer(self) -> Peer:
        """From where it comes."""

    def close(self) -> None:
        """Close the connection, which is over. No schedule point."""

    def blame(self, fault: ConnectionFault) -> None:
        """Tell that its client has broken it."""


class Http2Connection:
    """Serves what a client asks for over HTTP/2, until it leaves.

    Args:
        service: What all connections of a server share.
        stream: The connection.
        owner: Who accepted it.
        reactor: Waits for the stream, if it can be polled.

    Attributes:
        options: How it is served.
        peer: From where it comes.
        sending: Sends answers.
        expires: When something takes too long, by trio's clock.
    """

    def __init__(
        self,
        service: HttpServer,
        stream: trio.abc.Stream,
        owner: Http2ConnectionOwner,
        reactor: Reactor,
    ) -> None:
        self._service = service
        self._stream = stream
        self._socket = stream if isinstance(stream, DeadlineStream) else None
        self._owner = owner
        self._reactor = reactor
        self._readiness = Readiness(service, stream, reactor)
        self.options = options = service.options
        self.peer = owner.peer
        self._bucket = TokenBucket(trio.current_time)
        self._protocol = Http2Protocol(service.http2_heads, self._bucket, service.counters)
        self.sending = Http2SendScheduler(
            self._protocol, service.counters, options.write_deadline, self.look_at
        )
        self._writer = ConnectionWriter(stream, self.sending, service.coalescer, self)
        self._requests = Http2RequestTable(self, service, stream, self.sending, self._writer)
        self.expires = math.inf
        self._head_until = math.inf
        self._linger_until = math.inf
        self._farewell_until = math.inf
        self._retired = False
        self._lingering = False  # nothing more is said, and what comes is thrown away
        self._unread = 0  # how much of it at most
        self._over = False
        self._pace = Pace()  # of its turns, in each of which many requests may be served
        self._turn_is_due = True  # whatever comes: the server speaks first
        self._had_turn = False

    async def run(self, data: bytes = b"") -> None:
        """Serve the connection to its end, and that of what was asked for.

        Args:
            data: What has been read from it already.
        """
        self._service.deadlines.enter(self)
        self._wait_idle()
        self._protocol.receive(data)
        try:
            await self._service.newcomers.wait()
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._writer.run)
                self._nursery.start_soon(Leader(self._receive, self._take_turn).run)
        finally:
            self.lose()

    # -- its end ---------------------------------------------------------------------------------

    def idle_since(self) -> float | None:
        """Tell since when no request is under way; None while one is."""
        return self._requests.idle_since

    def retire(self) -> None:
        """Begin no more requests, and end once those are answered that are under way; at once if there are none."""
        self._retired = True
        if self._requests.idle_since is not None:
            self._end()
        else:
            self._protocol.announce_end()
            self._writer.flush()

    def linger(self, seconds: float) -> float:
        """Retire, but end no sooner than it has been idle for so many seconds; what its client asks for meanwhile is refused, as it may repeat.

        Returns:
            For how many seconds it stays open.
        """
        idle_since = self._requests.idle_since
        left = 0 if idle_since is None else min(seconds, idle_since + seconds - trio.current_time())
        if left <= 0:
            self.retire()
            return 0
        self._retired = True
        self._protocol.announce_end()
        self._writer.flush()
        self._farewell_until = trio.current_time() + left
        self.look_at(self._farewell_until)
        return left

    def expire(self) -> None:
        """End what takes too long."""
        now, self.expires = trio.current_time(), math.inf
        self._requests.expire(now)
        if now >= self._linger_until:
            self.lose()
        elif now >= self._head_until:
            self._service.app.note("head_timeout", self.peer, "a connection was ended")
            self._end(ErrorCode.ENHANCE_YOUR_CALM)
        elif now >= self._idle_until():
            if self._protocol.leaving:
                self._end()
            else:
                self._protocol.announce_end()
                self._writer.flush()
        if not self._over:
            self._look_again()

    def _look_again(self) -> None:
        self.look_at(min(self._requests.soonest(), self._head_until, self._linger_until, self._idle_until()))

    def _idle_until(self) -> float:
        """Tell until when it may be idle, at the end of which that is told; and once it was, until when it stays."""
        if self._requests.idle_since is None:
            return math.inf
        farewell = _FAREWELL_SECONDS if self._protocol.leaving else 0.0
        return min(
            self._requests.idle_since + self.options.keep_alive_timeout + farewell, self._farewell_until
        )

    def look_at(self, time: float) -> None:
        """Have `expire` called then."""
        if time < self.expires:
            self.expires = time
            deadlines = self._service.deadlines
            if time < deadlines.next_look:
                deadlines.look_at(time)

    def _wait_idle(self) -> None:
        self._requests.idle_since = now = trio.current_time()
        self.look_at(now + self.options.keep_alive_timeout)

    def _end(self, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """End the connection, and tell the client."""
        self._protocol.end(code)
        self._requests.leave_all()
        self._writer.flush()

    def _fail(self, fault: ConnectionFault) -> None:
        """End a connection that the client has broken; it has to read why."""
        self._owner.blame(fault)
        self._protocol.end(fault.code)
        self._lingering = True
        self._unread = self.options.unread_body_bytes
        self._linger_until = trio.current_time() + self.options.unread_body_timeout
        self.look_at(self._linger_until)
        self._requests.leave_all()

    def lose(self) -> None:
        """End at once. Harmless once that was done. No schedule point."""
        if self._over:
            return
        self._over = self._writer.over = True
        self._service.deadlines.leave(self)
        self._readiness.forget()
        self._protocol.closed = True
        self._requests.leave_all()
        self._writer.give_up()
        self._owner.close()

    # -- reading ---------------------------------------------------------------------------------

    async def _receive(self) -> bool:
        """Wait for what the client sends, and return whether there may be more, for a task; not if it comes in turns from now on."""
        writer = self._writer
        if writer.unsent is not None:
            await writer.caught_up()
        if self._over or self._turn_is_due:
            if self._had_turn and self._protocol.has_more:
                await self._service.returning.wait()
            else:
                await trio.lowlevel.checkpoint()
            return not self._over
        if self._readiness.watch(self._take_ready):
            return False
        try:
            data = bytes(await self._stream.receive_some(READ_BYTES))
        except GONE:
            data = b""
        self._take_data(data)
        return not self._over

    def _take_ready(self) -> EagerTask | None:
        """Take what has come, in a turn of the reactor."""
        reactor, eager = self._reactor, None
        reactor.pace = self._pace
        if self._pace.slow:
            reactor.write_first()
        try:
            data = self._receive_now()
            if data is not None:
                self._take_data(data)
                eager = None if self._over else self._take_turn(reactor.scope)
        except Exception as failure:  # noqa: BLE001 - it is this connection's
            self._fail_soon(failure)
            return None
        if not self._over and (self._turn_is_due or self._writer.unsent is not None):
            self._readiness.forget()
            self._nursery.start_soon(Leader(self._receive, self._take_turn).run)
        return eager

    def _receive_now(self) -> bytes | None:
        try:
            data: bytes | None = self._stream.receive_now()  # type: ignore[attr-defined]  # whoever gave a reactor knows
        except GONE:
            return b""
        return data

    def _take_data(self, data: bytes) -> None:
        """Take what has come; nothing, once the client has gone."""
        self._writer.heard += len(data)
        if self._lingering:
            self._unread -= len(data)
        elif not self._protocol.closed:
            self._protocol.receive(data)
            if self._requests.gathering and self._protocol.body_of is not None:
                self._requests.received(self._protocol.body_of, len(data))
        if not data or self._unread < 0:
            self.lose()

    def _take_turn(self, scope: trio.CancelScope) -> EagerTask | None:
        """Do what the client wants, up to a bound; returns a handler that waits, if there is one."""
        self._requests.scope = scope
        self._writer.in_turn, eager, taken, protocol = True, None, 0, self._protocol
        self._had_turn = True
        requests = self._requests
        requests.started = 0
        protocol.price = 0.0
        try:
            while (
                eager is None
                and taken + protocol.price < _MOST_IN_TURN
                and requests.started < _MOST_STARTED
                and not protocol.closed
            ):
                event = protocol.next_event()
                if event is None:
                    break
                taken += 1
                eager = self._take(event)
        except ConnectionFault as fault:
            self._fail(fault)
        finally:
            self._writer.in_turn = False
            full = taken + protocol.price >= _MOST_IN_TURN or requests.started >= _MOST_STARTED
            self._turn_is_due = eager is not None or full
            self._wait_for_rest()
            self._reactor.write_soon(self._writer)
        return eager

    def _fail_soon(self, failure: Exception) -> None:
        """Have the connection's own task raise what is its fault alone."""
        self._readiness.forget()
        self._nursery.start_soon(_raise, failure)

    def _wait_for_rest(self) -> None:
        """Set bounds to how long what has begun to come may take."""
        self._requests.gathering.begin_to_wait()
        if not self._protocol.in_head:
            self._head_until = math.inf
        elif self._head_until == math.inf and not self._protocol.closed:
            self._head_until = trio.current_time() + self.options.head_timeout
            self.look_at(self._head_until)

    def _take(self, event: Event) -> EagerTask | None:
        if isinstance(event, RequestBegun):
            return self._requests.begin(event)
        if isinstance(event, BodyReceived):
            return self._requests.take_body(event)
        if isinstance(event, WindowOpened):
            self.sending.window_opened(event.stream_id)
        elif isinstance(event, StreamGone):
            self._requests.leave(event.stream_id)
        elif isinstance(event, ClientLeaves):
            self.retire()
        return None

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task that ends with the connection at the latest."""
        self._nursery.start_soon(function, *args)

    def rest(self, now: float) -> None:
        """Wait for the next request: none is under way any more."""
        if self._retired and not self._protocol.closed:
            self._end()
        else:
            self.look_at(now + self.options.keep_alive_timeout)

    # -- writing ---------------------------------------------------------------------------------

    def lose_soon(self) -> None:
        """See `ConnectionWriter`."""
        self._nursery.start_soon(self._lose_soon)

    async def _lose_soon(self) -> None:
        await trio.lowlevel.checkpoint()
        self.lose()

    def said_all(self) -> None:
        """Close a connection that has ended, once its client was told all."""
        if self._protocol.closed and not self._over:
            if self._lingering and self._socket is not None:
                self._socket.end_sending()
            elif not self._lingering:
                self.lose()


async def _raise(failure: Exception) -> None:
    raise failure
