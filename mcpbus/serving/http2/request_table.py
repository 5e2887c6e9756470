"""The requests of one HTTP/2 connection: served in its turns, by an ASGI application, or once a body has come without a task."""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter, thread_time
from typing import Any, Final, Protocol

import trio
from mcpbus_actors import EagerTask

from mcpbus.core.concurrency import ReportErrors
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.principals import Peer
from mcpbus.serving.asgi import AsgiCall, RequestLine, scope_of
from mcpbus.serving.head_cache import HeadCacheEntry
from mcpbus.serving.http2.connection_writer import ConnectionWriter
from mcpbus.serving.http2.errors import ErrorCode
from mcpbus.serving.http2.events import BodyReceived, RequestBegun
from mcpbus.serving.http2.head import Http2RequestHead
from mcpbus.serving.http2.request import Http2Request
from mcpbus.serving.http2.response_writer import Http2ResponseWriter
from mcpbus.serving.http2.send_scheduler import Http2SendScheduler
from mcpbus.serving.http2.sender import MOST_STREAMS
from mcpbus.serving.http2.websocket_transport import open_websocket
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.request_error import no_websocket, too_slow
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.responses import HeaderList


class Http2Exchange:
    """An `Exchange` of HTTP/2.

    Args:
        request: The request.
        flush_soon: Has what was said written in the next turn of the scheduler.
    """

    __slots__ = ("_flush_soon", "_request")

    def __init__(self, request: Http2Request, flush_soon: Callable[[], None]) -> None:
        self._request = request
        self._flush_soon = flush_soon

    @property
    def line(self) -> RequestLine:
        """See `Exchange`."""
        read = self._request.read
        return RequestLine("2", read.judged.verb, read.target, read.judged.headers.pairs())

    @property
    def over(self) -> bool:
        """See `Exchange`."""
        return self._request.gone

    async def read(self) -> tuple[bytes, bool]:
        """See `Exchange`."""
        self._request.invite()
        body = self._request.body
        await body.more()
        return body.take(), body.ended

    async def disconnected(self) -> None:
        """See `Exchange`."""
        await self._request.disconnected()

    def begin(self, status: int, fields: HeaderList, *, measured: bool) -> None:  # noqa: ARG002 - its last frame says so, too
        """See `Exchange`."""
        self._request.answering.say_head(status, fields)
        self._flush_soon()

    async def say(self, data: bytes, *, more: bool) -> None:
        """See `Exchange`. An answer that comes before the body has ended, ends after it: many clients send it all first."""
        request = self._request
        early = not more and request.is_early
        try:
            if data or more or early:
                say = partial(request.answering.say, data, last=not more and not early)
                await request.answering.wait_sent(say)
            if early or (not more and not data):
                await request.say_end()
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()  # who waits for the end hears of it


_MOST: Final = 16 * 1024
"""Bytes of a body that is waited for here, and is not counted; and of all bodies of a connection, four times as many."""


class PendingBodies:
    """The requests whose bodies are waited for."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: set[Http2Request] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: Http2Request) -> bool:
        return request in self._requests

    @staticmethod
    def suits(facts: HeadCacheEntry, head: Http2RequestHead) -> bool:
        """Whether the rest of a body is to be waited for here: if it will be short, and is wanted."""
        return facts.immediate and facts.head_validated and not head.expects and (head.length or 0) <= _MOST

    def add(self, request: Http2Request) -> None:
        """Wait for the body of a request."""
        self._requests.add(request)

    def discard(self, request: Http2Request) -> None:
        """Wait for it no longer; it is there, or too long, or nobody wants it any more."""
        if request in self._requests:
            self._requests.discard(request)
            request.expires = math.inf

    def begin_to_wait(self) -> None:
        """Set bounds to how long bodies may take that have begun to come: as long as the endpoint gives its clients."""
        for request in self._requests:
            if request.expires == math.inf:
                request.wake_at(request.endpoint.limits.body_rate.begin(trio.current_time()))

    def received(self, request: Http2Request, size: int) -> None:
        """Note that so much more of a body has come."""
        if request in self._requests and request.expires < math.inf:
            now = trio.current_time()
            request.wake_at(request.endpoint.limits.body_rate.next_read(request.expires, now, size))

    def is_too_long(self, request: Http2Request) -> bool:
        """Whether so much of a body has come, or of all of them, that it is to be counted."""
        if len(request.body) > _MOST:
            return True
        return sum([len(each.body) for each in self._requests]) > 4 * _MOST


_SLOW_SECONDS: Final = 0.001
"""What a request has to take of our own time for the answers before it to be written first: a write is for all streams, and takes some too."""


class Http2RequestTableOwner(Protocol):
    """The connection.

    Attributes:
        peer: From where it comes.
    """

    peer: Peer

    def look_at(self, time: float, /) -> None:
        """Have `Http2RequestTable.expire` called then."""

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a task that ends with the connection at the latest."""

    def rest(self, now: float, /) -> None:
        """Hear that no request is under way any more, and what time it is."""


class Http2RequestTable:
    """The requests that are under way, which know it as their connection.

    Args:
        connection: The connection.
        service: What all connections of a server share.
        stream: The connection's bytes.
        sending: Sends answers.
        writer: Writes what was sent.

    Attributes:
        service: The same.
        peer: From where they come.
        sending: The same.
        writer: The same.
        gathering: Those whose bodies are waited for without a task.
        scope: Encloses the task that takes the turn which is under way.
        idle_since: Since when none is under way; None while one is.
        started: The tasks that the turn has started which is under way.
    """

    def __init__(
        self,
        connection: Http2RequestTableOwner,
        service: HttpServer,
        stream: trio.abc.Stream,
        sending: Http2SendScheduler,
        writer: ConnectionWriter,
    ) -> None:
        self._connection = connection
        self.service = service
        self._stream = stream
        self.writer = writer
        self.peer = connection.peer
        self.sending = sending
        self.scope: trio.CancelScope = trio.CancelScope()
        self.idle_since: float | None = trio.current_time()
        self._requests: dict[int, Http2Request] = {}
        self._tasks = 0  # also of those whose stream has gone
        self.started = 0
        self.gathering = PendingBodies()

    def look_at(self, time: float) -> None:
        """See `Http2RequestTableOwner`."""
        self._connection.look_at(time)

    # -- what becomes of the connection ------------------------------------------------------------

    def soonest(self) -> float:
        """Return when one of them is to be looked at."""
        return min([request.soonest for request in self._requests.values()], default=math.inf)

    def expire(self, now: float) -> None:
        """End what takes too long."""
        for request in tuple(self._requests.values()):
            if request.soonest > now:
                continue
            if request.answering.is_stalled:
                self._note_stalled()
                request.reset(ErrorCode.CANCEL)
            elif request in self.gathering and request.expires <= now:
                self.gathering.discard(request)
                request.refuse(too_slow("body_timeout"))
            else:
                request.expire()

    def _note_stalled(self) -> None:
        options, app = self.service.options, self.service.app
        self.service.counters.withheld += 1
        consequence = f"a stream whose client accepted nothing for {options.write_deadline:g} s was reset"
        app.note("write_deadline", self.peer, consequence)

    def leave(self, stream_id: int) -> None:
        """Give up one whose stream has gone."""
        request = self._requests.get(stream_id)
        if request is not None:
            request.leave()

    def leave_all(self) -> None:
        """Give them all up: the connection has gone."""
        for request in tuple(self._requests.values()):
            request.leave()

    # -- what comes ------------------------------------------------------------------------------

    def received(self, stream_id: int, size: int) -> None:
        """Note that so much more of a body has come."""
        request = self._requests.get(stream_id)
        if request is not None:
            self.gathering.received(request, size)

    def begin(self, event: RequestBegun) -> EagerTask | None:
        """Begin a request, and serve it if it is whole; returns a handler that waits, if there is one."""
        stream_id, head = event.stream_id, event.head
        if self._tasks >= 2 * MOST_STREAMS:
            self.sending.protocol.refuse(stream_id)
            return None
        facts = None if head.fault is not None else self.service.facts(head)
        request = Http2Request(self, stream_id, head, facts, self.scope)
        self._requests[stream_id] = request
        self.idle_since = None
        if event.ended and facts is not None and facts.immediate:
            request.body.ended = True
            return self._respond(request, event.body)
        request.body.add(event.body, ended=event.ended)
        if head.fault is not None:
            request.refuse(head.fault)
        elif head.leaves:
            self._connect(request)
        elif facts is None:
            app, exchange = self.service.app, Http2Exchange(request, self.writer.flush_soon)
            self.start(request, AsgiCall(app.asgi, exchange, scope_of(self._stream, app.state)).run)
        elif self.gathering.suits(facts, head):
            self.gathering.add(request)
        else:
            return self._respond(request, None)
        return None

    def _connect(self, request: Http2Request) -> None:
        """Open a WebSocket at an endpoint."""
        websockets = None if request.facts is None else request.endpoint.websockets
        if websockets is None:
            request.refuse(no_websocket())
        else:
            self.start(request, open_websocket, self, request, websockets)

    def take_body(self, event: BodyReceived) -> EagerTask | None:
        """Take more of a body, and serve its request if it is whole; returns a handler that waits, if there is one."""
        request = self._requests.get(event.stream_id)
        if request is None:
            return None
        request.body.add(event.data, ended=event.ended)
        turn = request.turn
        if turn is not None:
            request.scope = self.scope
            eager = turn()
            if request.turn is not None and request.body.over:  # nothing more comes that could tell of it
                self.start(request, _take_end, request)
            return eager
        if request not in self.gathering:
            return None
        if event.ended:
            self.gathering.discard(request)
            return self._respond(request, request.body.take())
        self.gathering.received(request, len(event.data))
        if self.gathering.is_too_long(request):
            self.gathering.discard(request)
            return self._respond(request, None)
        return None

    def _respond(self, request: Http2Request, body: bytes | None) -> EagerTask | None:
        """Serve a request whose body is there, or still arrives, and then is counted; returns an eager task that waits."""
        facts = request.facts
        assert facts is not None  # noqa: S101 - only an endpoint serves without waiting
        pace = facts.pace
        if pace.slow:
            self.writer.flush_now()  # answers that are there do not wait for it
        # The time of the thread alone takes two system calls, so it is asked only of what has seemed slow.
        clock = thread_time if pace.slow else perf_counter
        begun = clock()
        request.scope = self.scope
        respond = facts.endpoint.respond
        # How long a body is that nobody has announced, its head could not say.
        cleared = facts.head_validated and (
            body is None or request.read.length is not None or len(body) <= facts.endpoint.max_body_bytes
        )
        try:
            result = self.service.context.copy().run(respond, request.head, body, request, cleared=cleared)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001 - the application is somebody else's code; its client gets an answer
            request.fail(failure)
            return None
        if isinstance(result, HttpResponse):
            request.finish(result)
            result = None
        seconds = clock() - begun
        if seconds <= _SLOW_SECONDS:
            pace.took(0.0)
        elif clock is thread_time:
            pace.took(seconds)
        else:
            pace.mark_slow()
        return result

    def open(self, request: Http2Request, opened: StreamedResponse) -> None:
        """Answer from a stream."""
        endpoint = request.endpoint
        request.speaker = writer = Http2ResponseWriter(
            request, opened, endpoint.limits, self.service.coalescer
        )
        if request.gone:
            writer.cancel()
        else:
            writer.begin()

    def start(self, request: Http2Request, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task that answers a request."""
        self._tasks += 1
        self.started += 1
        self._connection.start_soon(self._run, request, function, args)

    async def _run(
        self, request: Http2Request, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]
    ) -> None:
        trio.lowlevel.current_task().context = self.service.context.copy()
        failed = True
        try:
            with ReportErrors(partial(self.service.app.report, head=request.head)):
                try:
                    await function(*args)
                    failed = False
                except* trio.BrokenResourceError:
                    pass  # of the client, which is seen below
        finally:
            self._tasks -= 1
        if not request.answering.ended and (failed or request.speaker is None):
            request.end_in_disorder()

    def said_last(self, stream_id: int, *, whole: bool) -> None:
        """See `mcpbus.serving.http2.send_stream.Http2SendOwner`."""
        request = self._requests.get(stream_id)
        if request is not None:
            request.end(whole=whole)

    def answered(self, request: Http2Request) -> None:
        """Forget a request whose stream has ended."""
        self.gathering.discard(request)
        if self._requests.pop(request.stream_id, None) is not None and not self._requests:
            self.idle_since = now = self.service.deadlines.clock()
            self._connection.rest(now)


async def _take_end(request: Http2Request) -> None:
    """Take the turn in which the end is found of what else than HTTP was spoken."""
    await trio.lowlevel.checkpoint()
    if request.turn is not None:
        request.turn()
