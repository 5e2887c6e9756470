"""One HTTP/2 connection: the one place that reads its bytes; `connection_writer` writes them.

What has come is read in turns, in which requests are served that nothing has to be waited for; what they say is written at the
end of the turn. Most turns are taken where all connections are waited for, as those of HTTP/1.1; a task takes them while the client
takes less than it asks for, after it has asked for much at once, and if the connection cannot be polled, such as TLS. What is said later is written at once, or together with what others say in the same turn of the scheduler.
"""

import math
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import thread_time
from typing import Any, Final, Protocol

import trio
from mcpbus_actors import EagerTask, Leader

from mcpbus.core.containment import Contained
from mcpbus.protocol.http.messages import Answer, Head
from mcpbus.protocol.owners import Peer
from mcpbus.serving.asgi import serve_request
from mcpbus.serving.asgi_call import AsgiCall, scope_of
from mcpbus.serving.deadline_stream import GONE, READ_BYTES, DeadlineStream
from mcpbus.serving.head_facts import HeadFacts
from mcpbus.serving.http2.asgi import Http2Exchange
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
from mcpbus.serving.http2.head import RequestHead
from mcpbus.serving.http2.protocol import MOST_STREAMS
from mcpbus.serving.http2.protocol import Protocol as Http2Protocol
from mcpbus.serving.http2.request import Http2Request
from mcpbus.serving.http2.response_writer import Http2ResponseWriter
from mcpbus.serving.http2.sending import Sending
from mcpbus.serving.http2.service import Http2Service
from mcpbus.serving.http2.token_bucket import TokenBucket
from mcpbus.serving.http2.websocket import call_websocket, open_websocket
from mcpbus.serving.reactor import Pace, Reactor
from mcpbus.serving.readiness import Readiness
from mcpbus.serving.write_coalescer import Writer

_MOST_IN_TURN: Final = 32
"""What a client may do before other connections have a turn."""
_MOST_GATHERED: Final = 16 * 1024
"""Bytes of a body that are waited for without a task, and are not counted; and of all bodies of a connection, four times as many."""
_SLOW_SECONDS: Final = 0.001
"""What a request has to take of our own time for the answers before it to be written first: a write is for all streams, and takes some too."""


class Owner(Protocol):
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
        self, service: Http2Service, stream: trio.abc.Stream, owner: Owner, reactor: Reactor | None = None
    ) -> None:
        self._service = service
        self._stream = stream
        self._socket = stream if isinstance(stream, DeadlineStream) else None
        self._owner = owner
        self._reactor = reactor
        self._readiness = Readiness(stream, reactor, None)
        self.options = options = service.options
        self.peer = owner.peer
        self._bucket = TokenBucket(trio.current_time)
        self._protocol = Http2Protocol(service.heads, self._bucket, service.counters)
        self.sending = Sending(self._protocol, service.counters, options.write_deadline_seconds, self.look_at)
        self._writer = ConnectionWriter(stream, self.sending, service.coalescer, self)
        self._requests: dict[int, Http2Request] = {}
        self._tasks = 0  # of requests, also of those whose stream has gone
        self._gathering: set[Http2Request] = set()
        self.expires = math.inf
        self._idle_since: float | None = trio.current_time()
        self._head_until = math.inf
        self._linger_until = math.inf
        self._retired = False
        self._lingering = False  # nothing more is said, and what comes is thrown away
        self._unread = 0  # how much of it at most
        self._over = False
        self._in_turn = False
        self._pace = Pace()  # of its turns, in each of which many requests may be served
        self._scope: trio.CancelScope = trio.CancelScope()
        self._turn_is_due = True  # whatever comes: the server speaks first

    async def run(self, data: bytes = b"") -> None:
        """Serve the connection to its end, and that of what was asked for.

        Args:
            data: What has been read from it already.
        """
        self._service.deadlines.enter(self)
        self._wait_idle()
        self._protocol.receive(data)
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._writer.run)
                self._nursery.start_soon(Leader(self._receive, self._take_turn).run)
        finally:
            self.lose()

    # -- its end ---------------------------------------------------------------------------------

    @property
    def wire(self) -> "Http2Connection":
        """What has a deadline; see `Expiring`."""
        return self

    def idle_since(self) -> float | None:
        """Tell since when no request is under way; None while one is."""
        return self._idle_since

    def retire(self) -> None:
        """Begin no more requests, and end once those are answered that are under way; at once if there are none."""
        self._retired = True
        if self._idle_since is not None:
            self._end()
        else:
            self._protocol.announce_end()
            self.flush()

    def expire(self) -> None:
        """End what takes too long."""
        now, self.expires = trio.current_time(), math.inf
        for request in tuple(self._requests.values()):
            if request.soonest <= now:
                request.expire()
        if now >= self._linger_until:
            self.lose()
        elif now >= self._head_until:
            self._service.app.note("head_seconds", self.peer, "a connection was ended")
            self._end(ErrorCode.ENHANCE_YOUR_CALM)
        elif self._idle_since is not None and now >= self._idle_since + self.options.keep_alive_seconds:
            self._end()
        if not self._over:
            self._look_again()

    def _look_again(self) -> None:
        times = [request.soonest for request in self._requests.values()]
        times += [self._head_until, self._linger_until]
        if self._idle_since is not None:
            times.append(self._idle_since + self.options.keep_alive_seconds)
        self.look_at(min(times))

    def look_at(self, time: float) -> None:
        """Have `expire` called then."""
        if time < self.expires:
            self.expires = time
            deadlines = self._service.deadlines
            if time < deadlines.next_look:
                deadlines.look_at(time)

    def _wait_idle(self) -> None:
        self._idle_since = now = trio.current_time()
        self.look_at(now + self.options.keep_alive_seconds)

    def _end(self, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """End the connection, and tell the client."""
        self._protocol.end(code)
        self._leave_all()
        self.flush()

    def _fail(self, fault: ConnectionFault) -> None:
        """End a connection that the client has broken; it has to read why."""
        self._owner.blame(fault)
        self._protocol.end(fault.code)
        self._lingering = True
        self._unread = self.options.unread_body_bytes
        self._linger_until = trio.current_time() + self.options.unread_body_seconds
        self.look_at(self._linger_until)
        self._leave_all()

    def _leave_all(self) -> None:
        for request in tuple(self._requests.values()):
            request.leave()

    def lose(self) -> None:
        """End at once. Harmless once that was done. No schedule point."""
        if self._over:
            return
        self._over = self._writer.over = True
        self._service.deadlines.leave(self)
        self._readiness.forget()
        self._protocol.closed = True
        self._leave_all()
        self._writer.give_up()
        self._owner.close()

    # -- reading ---------------------------------------------------------------------------------

    async def _receive(self) -> bool:
        """Wait for what the client sends, and return whether there may be more, for a task; not if it comes in turns from now on."""
        writer = self._writer
        if writer.unsent is not None:
            await writer.caught_up()
        if self._over or self._turn_is_due:
            await trio.lowlevel.checkpoint()
            return not self._over
        if self._watch():
            return False
        try:
            data = bytes(await self._stream.receive_some(READ_BYTES))
        except GONE:
            data = b""
        self._take_data(data)
        return not self._over

    def _watch(self) -> bool:
        """Have turns taken whenever something has come, and return True; if that cannot be, return False."""
        if self._reactor is None:
            return False
        try:
            self._readiness.watch(self._take_ready)
        except OSError:  # there are bounds to what a kernel waits for
            return False
        return True

    def _take_ready(self) -> EagerTask | None:
        """Take what has come, in a turn of the reactor."""
        reactor, eager = self._reactor, None
        if reactor is None or not self._readiness.watched:
            return None  # it was due before that
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
            self._note_progress(len(data))
        if not data or self._unread < 0:
            self.lose()

    def _note_progress(self, size: int) -> None:
        stream_id = self._protocol.body_of
        request = None if stream_id is None else self._requests.get(stream_id)
        if request is not None:
            request.received(size)

    def _take_turn(self, scope: trio.CancelScope) -> EagerTask | None:
        """Do what the client wants, up to a bound; returns a handler that waits, if there is one."""
        self._scope = scope
        self._in_turn, eager, taken = True, None, 0
        try:
            while eager is None and taken < _MOST_IN_TURN and not self._protocol.closed:
                event = self._protocol.next_event()
                if event is None:
                    break
                taken += 1
                eager = self._take(event)
        except ConnectionFault as fault:
            self._fail(fault)
        finally:
            self._in_turn = False
            self._turn_is_due = eager is not None or taken == _MOST_IN_TURN
            self._wait_for_rest()
            if self._reactor is None:
                self._writer.flush_now()
            else:
                self._reactor.write_soon(self)
        return eager

    def write_now(self) -> None:
        """Write what was said in a turn. See `mcpbus.serving.write_coalescer.Writer`."""
        try:
            self._writer.flush_now()
        except Exception as failure:  # noqa: BLE001 - as it may be another one's turn
            self._fail_soon(failure)

    def _fail_soon(self, failure: Exception) -> None:
        """Have the connection's own task raise what is its fault alone."""
        self._readiness.forget()
        self._nursery.start_soon(_raise, failure)

    def _wait_for_rest(self) -> None:
        """Set bounds to how long what has begun to come may take."""
        for request in self._gathering:
            request.begin_to_wait()
        if not self._protocol.in_head:
            self._head_until = math.inf
        elif self._head_until == math.inf and not self._protocol.closed:
            self._head_until = trio.current_time() + self.options.head_seconds
            self.look_at(self._head_until)

    def _take(self, event: Event) -> EagerTask | None:
        if isinstance(event, RequestBegun):
            return self._begin(event)
        if isinstance(event, BodyReceived):
            return self._take_body(event)
        if isinstance(event, WindowOpened):
            self.sending.window_opened(event.stream_id)
        elif isinstance(event, StreamGone):
            request = self._requests.get(event.stream_id)
            if request is not None:
                request.leave()
        elif isinstance(event, ClientLeaves):
            self.retire()
        return None

    # -- requests --------------------------------------------------------------------------------

    def _begin(self, event: RequestBegun) -> EagerTask | None:
        stream_id, head = event.stream_id, event.head
        if self._tasks >= 2 * MOST_STREAMS:
            self._protocol.refuse(stream_id)
            return None
        facts = None if head.fault is not None else self._service.facts(head)
        request = Http2Request(self, stream_id, head, facts, self._scope)
        request.body.ended = event.ended
        self._requests[stream_id] = request
        self._idle_since = None
        if head.fault is not None:
            request.refuse(head.fault)
        elif head.protocol is not None:
            self._connect(request)
        elif facts is None:
            app, exchange = self._service.app, Http2Exchange(request, self._writer.flush_soon)
            self.start(request, AsgiCall(app.asgi, exchange, scope_of(self._stream, app.state)).run)
        elif not facts.immediate or not (event.ended or self._gathers(facts, head)):
            self.start(request, serve_request, facts.endpoint, request)
        elif event.ended:
            return self._respond(request, b"")
        else:
            request.waits_for_body = True
            self._gathering.add(request)
        return None

    def _connect(self, request: Http2Request) -> None:
        """Open a WebSocket: its endpoint does, or the application, through ASGI."""
        seconds = self.options.websocket_ping_seconds
        websockets = None if request.facts is None else request.endpoint.websockets
        if websockets is not None:
            self.start(request, partial(open_websocket, ping_seconds=seconds), self, request, websockets)
            return
        app, exchange = self._service.app, Http2Exchange(request, self._writer.flush_soon)
        scope = scope_of(self._stream, app.state).describe("websocket", exchange.line)
        report = partial(self._report, request.head)
        self.start(
            request, partial(call_websocket, ping_seconds=seconds), app.asgi, request, exchange, scope, report
        )

    def _gathers(self, facts: HeadFacts, head: RequestHead) -> bool:
        """Whether a body is waited for without a task: if it will be short, and wanted."""
        return facts.cleared and not head.expects and (head.length or 0) <= _MOST_GATHERED

    def _take_body(self, event: BodyReceived) -> EagerTask | None:
        request = self._requests.get(event.stream_id)
        if request is None:
            return None
        request.body.add(event.data, ended=event.ended)
        if request.tunnel is not None:
            request.scope = self._scope
            return request.tunnel.take()
        if not request.waits_for_body:
            return None
        if event.ended:
            self._stop_gathering(request)
            return self._respond(request, request.body.take())
        request.received(len(event.data))
        if len(request.body) > _MOST_GATHERED or self._holds_too_much():
            self._stop_gathering(request)
            self.start(request, serve_request, request.endpoint, request)
        return None

    def _holds_too_much(self) -> bool:
        return sum([len(request.body) for request in self._gathering]) > 4 * _MOST_GATHERED

    def _stop_gathering(self, request: Http2Request) -> None:
        self._gathering.discard(request)
        request.waits_for_body = False
        request.expires = math.inf

    def _respond(self, request: Http2Request, body: bytes) -> EagerTask | None:
        """Serve a request that is whole."""
        facts = request.facts
        assert facts is not None  # noqa: S101 - only an endpoint serves without waiting
        pace = facts.pace
        if pace.slow:
            self._writer.flush_now()  # answers that are there do not wait for it
        begun = thread_time()
        request.scope = self._scope
        respond = facts.endpoint.respond
        # How long a body is that nobody has announced, its head could not say.
        cleared = facts.cleared and (
            request.read.length is not None or len(body) <= facts.endpoint.max_body_bytes
        )
        try:
            result = self._service.context.copy().run(
                partial(respond, request.head, body, request, cleared=cleared)
            )
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001 - the application is somebody else's code; its client gets an answer
            request.fail(failure)
            return None
        if isinstance(result, Answer):
            request.finish(result)
            result = None
        seconds = thread_time() - begun
        pace.took(seconds if seconds > _SLOW_SECONDS else 0.0)
        return result

    def start(self, request: Http2Request, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task that answers a request."""
        self._tasks += 1
        self._nursery.start_soon(self._run, request, function, args)

    async def _run(
        self, request: Http2Request, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]
    ) -> None:
        trio.lowlevel.current_task().context = self._service.context.copy()
        failed = True
        try:
            with Contained(partial(self._report, request.head)):
                try:
                    await function(*args)
                    failed = False
                except* trio.BrokenResourceError:
                    pass  # of the client, which is seen below
        finally:
            self._tasks -= 1
        if not request.answering.ended and (failed or request.tunnel is None):
            request.end_in_disorder()

    def _report(self, head: Head, failure: BaseException) -> None:
        self.report(failure, head)

    def report(self, failure: BaseException, head: Head) -> None:
        """Tell that the application failed."""
        self._service.app.report(failure, head.verb, head.path)

    def note(self, limit: str, consequence: str) -> None:
        """Note that a limit was reached."""
        if limit == "write_deadline_seconds":
            self._service.counters.withheld += 1
        self._service.app.note(limit, self.peer, consequence)

    def said_last(self, stream_id: int, *, whole: bool) -> None:
        """See `mcpbus.serving.http2.send_stream.Connection`."""
        request = self._requests.get(stream_id)
        if request is not None:
            request.end(whole=whole)

    def answered(self, request: Http2Request) -> None:
        """Forget a request whose stream has ended."""
        self._gathering.discard(request)
        if self._requests.pop(request.stream_id, None) is None or self._requests:
            return
        self._wait_idle()
        if self._retired and not self._protocol.closed:
            self._end()

    # -- writing ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Have what was said written: at the end of the turn, or see `ConnectionWriter.flush`."""
        if not self._in_turn:
            self._writer.flush()

    def open_window(self, stream_id: int, size: int) -> None:
        """Let the client send as much more of a body."""
        self._protocol.open_window(stream_id, size)
        self.flush()

    @property
    def in_turn(self) -> bool:
        """Whether a turn is under way, of this connection or of another one."""
        return self._in_turn or (self._reactor is not None and self._reactor.in_turn)

    def say_later(self, writer: Writer) -> None:
        """Have somebody write after the turn, or in the next turn of the scheduler."""
        if self._reactor is not None and self._reactor.in_turn:
            self._reactor.write_soon(writer)
        else:
            self._service.coalescer.add(writer)

    def write_later(self, writer: Http2ResponseWriter) -> None:
        """Have `Http2ResponseWriter.write_now` called in the next turn of the scheduler."""
        self._service.coalescer.add(writer)

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
                with suppress(OSError):
                    self._socket.socket.shutdown(socket.SHUT_WR)
            elif not self._lingering:
                self.lose()


async def _raise(failure: Exception) -> None:
    raise failure
