"""One HTTP/2 request, as whoever serves it sees it."""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, Protocol

import trio

from mcpbus.core.receipt import DELIVERED, LOST
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.principals import Peer
from mcpbus.serving.asgi import DirectEndpoint
from mcpbus.serving.head_cache import HeadCacheEntry
from mcpbus.serving.http2.body import Http2Body
from mcpbus.serving.http2.connection_writer import ConnectionWriter
from mcpbus.serving.http2.errors import ErrorCode
from mcpbus.serving.http2.head import Http2RequestHead
from mcpbus.serving.http2.hpack_encoder import encode_whole_head
from mcpbus.serving.http2.send_scheduler import Http2SendScheduler, Sent
from mcpbus.serving.http2.send_stream import SendStream
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.reactor import Turn
from mcpbus.serving.request_error import RequestError, failed
from mcpbus.serving.unsent_response import UnsentResponse
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import CoalescedWriter, KeepAliveHandler, TaskResponse
from mcpbus.transports.responses import HeaderList
from mcpbus.transports.task_sink import write_whole


class Http2RequestConnection(Protocol):
    """The connection of a request.

    Attributes:
        service: What all connections of a server share.
        sending: Sends answers.
        writer: Writes what was sent.
        peer: From where it comes.
    """

    service: HttpServer
    sending: Http2SendScheduler
    writer: ConnectionWriter
    peer: Peer

    def look_at(self, time: float, /) -> None:
        """Have `Http2Request.expire` called then."""

    def start(
        self, request: "Http2Request", function: Callable[..., Awaitable[object]], /, *args: Any
    ) -> None:
        """Run a task that answers a request."""

    def open(self, request: "Http2Request", opened: StreamedResponse, /) -> None:
        """Answer from a stream."""

    def said_last(self, stream_id: int, /, *, whole: bool) -> None:
        """Have `Http2Request.end` called."""

    def answered(self, request: "Http2Request", /) -> None:
        """Forget a request whose stream has ended."""


class Http2Request:
    """A `TaskResponse` of HTTP/2, and the `ResponseSink` of one that is served in its connection's turn.

    Args:
        connection: Its connection.
        stream_id: Its stream.
        read: Its head, with what only HTTP/2 wants to know of it.
        facts: Who serves it, and how; None for an application that is called through ASGI.
        scope: Encloses the task that began to serve it.

    Attributes:
        head: The request before its body, as it is judged.
        peer: From where it came.
        body: Its body.
        answering: Where its answer is said.
        speaker: Who speaks on its stream, if no task does.
        turn: Taken when more of the body has come, if something else than HTTP is spoken there.
        expires: When something takes too long: its body, or a quiet answer.
    """

    __slots__ = (
        "_connection",
        "_failed",
        "_invited",
        "_left",
        "answering",
        "body",
        "expires",
        "facts",
        "head",
        "peer",
        "read",
        "scope",
        "speaker",
        "stream_id",
        "turn",
    )

    bounds_writes: ClassVar[bool] = True  # a stream that does not move is reset

    def __init__(
        self,
        connection: Http2RequestConnection,
        stream_id: int,
        read: Http2RequestHead,
        facts: HeadCacheEntry | None,
        scope: trio.CancelScope,
    ) -> None:
        self._connection = connection
        self.stream_id = stream_id
        self.read = read
        self.facts = facts
        self.scope = scope
        self.head = read.judged
        self.peer = connection.peer
        self.body = Http2Body(connection.writer, stream_id)
        self.answering = SendStream(connection, stream_id, bodiless=self.head.verb == "HEAD")
        self.speaker: KeepAliveHandler | None = None
        self.turn: Turn | None = None
        self.expires = math.inf
        self._failed = False
        self._invited = False  # whether a client that waits for it was told to send the body
        self._left: trio.lowlevel.ParkingLot | None = None  # once somebody waits

    @property
    def endpoint(self) -> DirectEndpoint:
        """Who serves it."""
        assert self.facts is not None  # noqa: S101 - otherwise nobody asks
        return self.facts.endpoint

    @property
    def gone(self) -> bool:
        """Whether nothing more can be said."""
        return self.answering.gone

    # -- time ------------------------------------------------------------------------------------

    def wake_at(self, time: float) -> None:
        """Have `expire` called then."""
        self.expires = time
        if time < math.inf:
            self._connection.look_at(time)

    @property
    def soonest(self) -> float:
        """When it is to be looked at."""
        return min(self.expires, self.answering.expires)

    def expire(self) -> None:
        """Say something, if it is time for that."""
        if self.expires <= trio.current_time():
            self.expires = math.inf
            if self.speaker is not None:
                self.speaker.keep_alive()

    # -- its body --------------------------------------------------------------------------------

    async def read_body(self, limit: int) -> bytes | None:
        """See `ResponseSink`."""
        length = self.read.length
        if length is not None and length > limit:
            return None
        self.invite()
        try:
            return await self.body.read(limit, self.endpoint, self.peer)
        except RequestError as fault:
            await self._refuse(fault)
            raise trio.BrokenResourceError("the body of the request did not come in time") from fault

    def invite(self) -> None:
        """Have a client send the body that waits until it is told to."""
        if self.read.expects and not (self._invited or self.answering.started or self.body or self.body.over):
            self._invited = True
            self.answering.say_early(100)

    # -- its answer ------------------------------------------------------------------------------

    @property
    def is_early(self) -> bool:
        """Whether the client sends the body still, and does not wait until it is told to (RFC 9110, section 10.1.1)."""
        if self.body.over or self.head.verb == "CONNECT":  # which has none
            return False
        protocol = self._connection.sending.protocol
        return not self.read.expects or self._invited or protocol.has_sent(self.stream_id)

    def begin(self, headers: HeaderList) -> None:
        """Begin an answer of status 200 in pieces; its head goes out with the first one."""
        assert self.facts is not None  # noqa: S101 - it is an endpoint's
        self.answering.begin([*headers, *self.facts.cors])

    def say_whole(self, reply: HttpResponse, sent: Sent) -> None:
        """Say a whole answer."""
        self.answering.say_whole(self._encode_head(reply), reply.body, last=True, sent=sent)

    def _encode_head(self, reply: HttpResponse) -> bytes:
        """Encode the head of a whole answer.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """
        cors = None if self.facts is None else self.facts.cors
        fields = [*reply.headers, *cors] if cors else reply.headers
        return encode_whole_head(reply.status, fields, len(reply.body))

    # -- for a request that is served in a turn ----------------------------------------------------

    @property
    def gathers(self) -> bool:
        """See `ResponseSink`."""
        return self._connection.writer.in_turn and self.facts is not None and not self.facts.pace.long

    def open(self, opened: StreamedResponse) -> None:
        """See `ResponseSink`."""
        self._connection.open(self, opened)

    def flush_last(self, writer: CoalescedWriter) -> None:
        """See `ResponseSink`."""
        self._connection.service.coalescer.add_last(writer)

    def respond_in_task(self, answer: Callable[[TaskResponse], Awaitable[None]]) -> None:
        """See `ResponseSink`."""
        self.speaker = None
        self._connection.start(self, answer, self)

    def on_handler_waiting(self, request: KeepAliveHandler, quiet: float) -> bool:
        """See `ResponseSink`."""
        if self.gone:
            request.cancel()
        else:
            self.speaker = request
            self.wake_at(trio.current_time() + quiet)
        return True

    def finish(self, answer: HttpResponse) -> None:
        """See `ResponseSink`."""
        if not self.body.over:  # a refusal, which many clients read only once they have sent the body
            self.respond_in_task(partial(write_whole, self.endpoint, answer))
            return
        self.speaker = None
        try:
            block = self._encode_head(answer)
            said = self.answering.say_at_once(block, answer.body, partial(self._answer_sent, answer))
        except Exception as failure:  # noqa: BLE001 - a field may be one that HTTP cannot say, or there is no memory
            self.endpoint.record(answer, LOST)
            self.fail(failure)
            return
        if not said:
            reply = UnsentResponse(answer, self.endpoint)
            self.answering.say_whole(block, answer.body, last=True, sent=reply.sent)
            if self.answering.unsent:
                reply.hold(self.answering.unsent, self.lose, self.peer)

    def _answer_sent(self, answer: HttpResponse, whole: bool) -> None:
        self.endpoint.record(answer, DELIVERED if whole else LOST)
        self.end(whole=whole)

    def fail(self, failure: BaseException) -> None:
        """See `ResponseSink`."""
        self._connection.service.app.report(failure, self.head)
        self.end_in_disorder()

    def end_in_disorder(self) -> None:
        """End what cannot be answered: with a 500, if nothing was said yet, and that can be."""
        if self.answering.started or self.gone or self._failed:
            self.reset(ErrorCode.INTERNAL_ERROR)
        else:
            self._failed = True
            self.refuse(failed())

    def refuse(self, fault: RequestError) -> None:
        """Answer what is not served."""
        self._connection.start(self, self._refuse, fault)

    async def _refuse(self, fault: RequestError) -> None:
        await self.answer(self._connection.service.app.refuse(fault, self.peer))

    # -- for one that has a task -------------------------------------------------------------------

    async def answer(self, reply: HttpResponse) -> None:
        """See `TaskResponse`. An answer that comes before the body has ended, ends after it: many clients send it all first."""
        early = self.is_early
        block = self._encode_head(reply)
        say = partial(self.answering.say_whole, block, reply.body, last=not early)
        await self.answering.wait_sent(say)
        if early:
            await self.say_end()

    async def start_stream(self, headers: HeaderList) -> None:
        """See `TaskResponse`. The head goes out with the first piece of the body."""
        self.begin(headers)

    async def write(self, data: bytes, *, more: bool) -> None:
        """See `TaskResponse`."""
        await self.answering.wait_sent(partial(self.answering.say, data, last=not more))

    async def say_end(self) -> None:
        """Say that this was all, once the body has ended, or is too long to wait for its end."""
        options = self._connection.service.options
        if not self.body.over:
            await self.body.discard(most=options.unread_body_bytes, seconds=options.unread_body_timeout)
        await self.answering.wait_sent(partial(self.answering.say, b"", last=True))

    def give_up(self) -> None:
        """See `TaskResponse`. A write can be cancelled."""

    async def disconnected(self) -> None:
        """See `TaskResponse`. A client that got the whole response has not disconnected, although the stream is over then."""
        if self.gone and not self.answering.ended:
            return
        if self._left is None:
            self._left = trio.lowlevel.ParkingLot()
        await self._left.park()

    # -- the end ---------------------------------------------------------------------------------

    def lose(self) -> None:
        """End in the middle of the answer."""
        self.reset(ErrorCode.INTERNAL_ERROR)

    def reset(self, code: ErrorCode) -> None:
        """Reset the stream, if it has not ended."""
        if not self.gone:
            self._connection.sending.protocol.reset(self.stream_id, code)
            self.leave()
            self._connection.writer.flush()

    def hang_up(self) -> None:
        """End what is spoken on the stream: with it if all that was said is sent, and else by a reset (RFC 8441, section 5)."""
        self.speaker = self.turn = None
        self.expires = math.inf
        if self.answering.unsent:
            self.reset(ErrorCode.CANCEL)
        elif not self.answering.ended:
            self.answering.say(b"", last=True, sent=_note_nothing)

    def end(self, *, whole: bool) -> None:
        """End the stream: the last of the answer was written, or lost."""
        if whole and not self.gone:
            self._let_go()
            # A request that still goes on has its answer (RFC 9113, section 8.1).
            self._connection.sending.protocol.reset(self.stream_id, ErrorCode.NO_ERROR)
        self._connection.answered(self)

    def leave(self) -> None:
        """Give up: the stream or the connection has gone."""
        if self.gone:
            return
        speaker = self.speaker
        self._let_go()
        if self._left is not None:
            self._left.unpark_all()
        self.answering.drop()
        if speaker is not None:
            speaker.cancel()
        self._connection.answered(self)

    def _let_go(self) -> None:
        self.answering.gone = True
        # They know each other, and should not wait for the garbage collector.
        self.speaker = self.turn = None
        self.expires = math.inf
        self.body.leave()


def _note_nothing(_whole: bool) -> None:
    """Wait for nobody who wants to know what came of something."""
