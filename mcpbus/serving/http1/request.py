"""One request of HTTP/1.1: the sink of its response, the framing of that, and the reading end of its body."""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, Protocol

import msgspec
import trio

from mcpbus.core.receipt import DELIVERED, LOST
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.serving.head_cache import HeadCacheEntry
from mcpbus.serving.http1.connection_io import ConnectionIO
from mcpbus.serving.http1.encoder import (
    CHUNKED,
    CLOSE,
    CONTINUE,
    END,
    KEEP,
    encode_answer,
    encode_chunk,
    encode_head,
)
from mcpbus.serving.http1.head import Http1RequestHead
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.reactor import Reactor
from mcpbus.serving.readiness import Readiness
from mcpbus.serving.request_error import RequestError
from mcpbus.serving.unsent_response import UnsentResponse
from mcpbus.transports.request_body import read_unfinished
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import CoalescedWriter, KeepAliveHandler, TaskResponse
from mcpbus.transports.responses import HeaderList


class ResponseFraming(msgspec.Struct, eq=False, kw_only=True):
    """What an endpoint's request and an application's have in common.

    Args:
        wire: The bytes of the connection.
        read: The head, with what only HTTP/1.1 wants to know of it.

    Attributes:
        head: The request before its body, as it is judged.
        started: Whether something of the answer was written.
        ended: Whether all of it was.
        closes: Whether the connection ends with it; the client knows.
        fault: What is wrong with its body, or with who serves it, to be answered instead.
    """

    _wire: ConnectionIO
    head: RequestHead
    _read: Http1RequestHead
    _said_continue: bool = False  # to a client that waits for that before it sends the body
    _chunked: bool = False
    _unsaid: bytes = b""  # a head that waits for what comes after it
    started: bool = False
    ended: bool = False
    closes: bool = False
    fault: RequestError | None = None

    def begin_pieces(self, status: int, fields: HeaderList, *, measured: bool) -> None:
        """Begin an answer in pieces; its head goes out with the first one.

        Args:
            status: The HTTP status.
            fields: Its header fields.
            measured: Whether they say where it ends.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """
        self._chunked = not measured and self._read.modern
        if not (measured or self._chunked):
            self.closes = True  # the end of the connection is the end of the answer
        framing = self.say_connection()
        self._unsaid = encode_head(status, fields, framing + CHUNKED if self._chunked else framing)

    def encode_piece(self, data: bytes, *, more: bool) -> bytes:
        """A piece of an answer, the last one unless `more`."""
        if self._chunked:
            data = encode_chunk(data) if more else encode_chunk(data) + END
        if self._unsaid:
            data, self._unsaid = self._unsaid + data, b""
        self.started = True
        return data

    def say_connection(self) -> bytes:
        """What the answer says of the connection, as a line of its head: nothing, `KEEP`, or `CLOSE` if it ends the connection.

        It is decided when the head is made.
        """
        head, wire = self._read, self._wire
        body = wire.requests.body
        if body is None and head.keeps and head.modern and not wire.retired:
            return b""  # as nearly always
        # The client may send this body or not, or it is too long to wait for its end.
        endless = body is not None and (
            (head.expects and not self._said_continue) or body.left > wire.options.unread_body_bytes
        )
        if endless or self.closes or wire.retired or not head.keeps:
            self.closes = True
            return CLOSE
        return b"" if head.modern else KEEP


class Http1RequestConnection(Protocol):
    """The connection, as those know it who work for it.

    Attributes:
        wire: Its bytes.
        readiness: When something comes.
        reactor: Waits for it.
        service: What all connections of a server share.
        speaker: Who speaks on it, if no task does; is cancelled if the client leaves.
    """

    wire: ConnectionIO
    readiness: Readiness
    reactor: Reactor
    service: HttpServer
    speaker: KeepAliveHandler | None

    def open(self, request: "Http1Request", opened: StreamedResponse, /) -> None:
        """Answer from a stream."""

    def wait(self, speaker: KeepAliveHandler | None, quiet: float, /) -> None:
        """Have somebody keep a request alive after so many seconds; None if its handler waits no more."""

    def leave(self, request: "Http1Request", answer: Callable[[], Awaitable[None]], /) -> None:
        """Have another task answer a request, and then go on with the connection."""

    def answered(self, request: ResponseFraming, /) -> None:
        """Go on with the next request; the answer of this one is written."""

    def go_on(self) -> None:
        """Wait for the next request, or look at it."""

    def watch_on(self) -> None:
        """Look again for bytes that come, and for the client's end, while a request is served."""

    def refuse(self, fault: RequestError | None, /) -> None:
        """End the connection in a task, which tells the client of a fault."""

    def fail(self, failure: BaseException, head: RequestHead, /) -> None:
        """End the connection, whose request could not be answered, and tell its client if nothing was said to it."""

    def lose(self) -> None:
        """End in the middle of an answer."""

    def close(self) -> None:
        """End the connection. Harmless once that was done. No schedule point."""

    def start(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a task that writes what the client does not take at once."""

    @property
    def work(self) -> object | None:
        """The task that goes on with it; None while it takes turns."""

    def hand_to(self, speaker: KeepAliveHandler, /) -> None:
        """Have somebody else speak on the connection, which does not come back to HTTP/1.1."""

    async def serve_http2(self, data: bytes, /) -> None:
        """Have it served by who speaks HTTP/2, from these bytes on."""


class Http1Request(ResponseFraming, eq=False):
    """A `TaskResponse` of HTTP/1.1, and the `ResponseSink` of one that is served in its connection's turn.

    Args:
        connection: The connection.

    Attributes:
        peer: From where it came.
        facts: Who serves it, and how.
        scope: Encloses the task that began to serve it.
        reply: A whole answer that waits to be written.
    """

    # Once more, to be given in this order; msgspec has what is only named stand last.
    _wire: ConnectionIO
    head: RequestHead
    _read: Http1RequestHead
    _connection: Http1RequestConnection
    peer: Peer
    facts: HeadCacheEntry
    scope: trio.CancelScope
    reply: HttpResponse | None = None
    bounds_writes: ClassVar[bool] = False
    _rest: bytes = b""  # of a whole answer that its client has not taken

    @property
    def gathers(self) -> bool:
        """See `ResponseSink`."""
        reactor = self._connection.reactor
        if not reactor.in_brief_turn:
            return False
        reactor.measure()
        return True

    def open(self, opened: StreamedResponse) -> None:
        """See `ResponseSink`."""
        self._connection.open(self, opened)

    def flush_last(self, writer: CoalescedWriter) -> None:
        """See `ResponseSink`."""
        self._connection.service.coalescer.add_last(writer)

    def respond_in_task(self, answer: Callable[[TaskResponse], Awaitable[None]]) -> None:
        """See `ResponseSink`."""
        self._connection.wait(None, math.inf)
        self._connection.leave(self, partial(answer, self))

    def on_handler_waiting(self, request: KeepAliveHandler, quiet: float) -> bool:
        """See `ResponseSink`."""
        self._connection.wait(request, quiet)
        return True

    def finish(self, answer: HttpResponse) -> None:
        """See `ResponseSink`."""
        connection = self._connection
        connection.speaker = None
        self.reply = answer
        connection.reactor.write_soon(self)

    def fail(self, failure: BaseException) -> None:
        """See `ResponseSink`."""
        self._connection.wait(None, math.inf)
        self._connection.fail(failure, self.head)

    async def read_body(self, limit: int) -> bytes | None:
        """See `ResponseSink`. A fault in it is kept for the connection to answer, and the client is as good as gone."""
        wire, requests = self._wire, self._wire.requests
        try:
            body = requests.take_body()
            if requests.body is None:
                return body if len(body) <= limit else None
            if self._read.expects and not self._said_continue:
                if not requests.waiting and not body:
                    await wire.send(CONTINUE)
                self._said_continue = True
            endpoint = self.facts.endpoint
            rate = endpoint.limits.body_rate
            return await read_unfinished(
                body,
                self._read_piece,
                limit=limit,
                rate=rate,
                until=rate.begin(trio.current_time()),
                budget=endpoint.budget,
                peer=self.peer,
            )
        except RequestError as fault:
            self.fault = fault
            raise trio.BrokenResourceError("the body of the request is malformed, or too slow") from fault
        finally:
            self._connection.watch_on()

    async def _read_piece(self, until: float) -> tuple[bytes, bool]:
        wire = self._wire
        if not await wire.receive_body(until):
            wire.gone = True
            raise trio.BrokenResourceError("the client went away while its request was read")
        return wire.requests.take_body(), wire.requests.body is None

    def write_now(self) -> None:
        """Write the whole answer that waits. See `CoalescedWriter`."""
        connection, endpoint, reply = self._connection, self.facts.endpoint, self.reply
        assert reply is not None  # noqa: S101 - it is not written before that
        try:
            rest = self._wire.send_now(self.encode_answer(reply))
        except Exception as failure:  # noqa: BLE001 - a field may be one that HTTP cannot say
            endpoint.record(reply, LOST)
            self.fail(failure)
            return
        if rest:
            self.reply, self._rest = None, rest
            held = UnsentResponse(reply, endpoint)
            try:
                # It is there twice while it is sent. Before its task begins it is counted, too: where many calls end in one turn of the
                # scheduler, no task has a turn between their answers.
                held.hold(2 * len(rest), partial(self._give_up, held), self.peer)
            except BaseException:
                held.sent(False)
                raise
            connection.start(self._write_rest, held)
        elif rest is None:
            endpoint.record(reply, LOST)
            connection.lose()
        else:
            endpoint.record(reply, DELIVERED)
            connection.answered(self)

    def lose(self) -> None:
        """End in the middle of the answer, or before it; a fault in the body is answered."""
        fault, self.fault = self.fault, None
        if fault is None:
            self._connection.lose()
        else:
            self._connection.refuse(fault)

    def _give_up(self, held: UnsentResponse) -> None:
        """Make room: what no task has begun to write is gone at once."""
        self._connection.lose()
        if self._rest:
            self._rest = b""
            held.sent(False)

    async def _write_rest(self, held: UnsentResponse) -> None:
        connection, wire = self._connection, self._wire
        rest, self._rest = self._rest, b""
        try:
            await wire.send(rest)
        finally:
            held.sent(not wire.gone)
            if wire.gone:
                connection.lose()
            else:
                connection.answered(self)

    def encode_answer(self, reply: HttpResponse) -> bytes:
        """A whole answer; nothing can be written after it."""
        cors = self.facts.cors
        fields = [*reply.headers, *cors] if cors else reply.headers
        bodiless = self.head.verb == "HEAD"
        data = encode_answer(reply.status, fields, reply.body, self.say_connection(), bodiless=bodiless)
        self.started = self.ended = True
        return data

    def begin_stream(self, headers: HeaderList) -> None:
        """Begin an answer of status 200 in pieces; its head goes out with the first one."""
        self.begin_pieces(200, [*headers, *self.facts.cors], measured=False)

    async def answer(self, reply: HttpResponse) -> None:
        """See `TaskResponse`."""
        await self._send(self.encode_answer(reply))

    async def start_stream(self, headers: HeaderList) -> None:
        """See `TaskResponse`. The head goes out with the first piece of the body."""
        self.begin_stream(headers)

    async def write(self, data: bytes, *, more: bool) -> None:
        """See `TaskResponse`."""
        await self._send(self.encode_piece(data, more=more))
        self.ended = not more

    async def _send(self, data: bytes) -> None:
        await self._wire.send(data)
        if self._wire.gone:
            raise trio.BrokenResourceError("the client has gone, or accepted nothing for too long")

    def give_up(self) -> None:
        """See `TaskResponse`."""
        self._wire.give_up()

    async def disconnected(self) -> None:
        """See `TaskResponse`."""
        await self._wire.client_left(self._connection.readiness)
