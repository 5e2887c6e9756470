"""A task of an HTTP/1.1 connection, for what has to be waited for.

It goes on from a request until nothing more is there: with a long body, a path that is not served in turns, an answer whose
stream is kept in a store, a client that leaves HTTP/1.1, a fault. A connection that cannot be polled has one all the time.

The task runs handlers itself. When one waits, the task stays with it, and another one goes on with the connection.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from mcpbus.core.containment import ReportErrors
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.websocket import select
from mcpbus.serving.asgi_call import AsgiCall, ConnectionScope, scope_of
from mcpbus.serving.http1.asgi import Http1Exchange, line_of
from mcpbus.serving.http1.encoder import CLOSE, encode_answer
from mcpbus.serving.http1.head import Http1RequestHead
from mcpbus.serving.http1.request import Http1Request, Http1RequestConnection
from mcpbus.serving.http1.served import ResponseFraming
from mcpbus.serving.http1.upgraded import Http1WebSocketTransport
from mcpbus.serving.http1.websocket import Http1Opening
from mcpbus.serving.http1.wire import IDLE, ConnectionPhase
from mcpbus.serving.request_error import RequestError, failed, too_slow
from mcpbus.serving.websocket.asgi import AsgiWebSocketCall
from mcpbus.serving.websocket.connection import WebSocketConnection
from mcpbus.serving.websocket.frames import WebSocketCodec
from mcpbus.serving.websocket.handshake import read_upgrade
from mcpbus.transports.task_sink import HttpTaskSink
from mcpbus.transports.websocket import WebSockets


class ConnectionTask:
    """What one task does for a connection.

    Args:
        connection: The connection.
        head: That of the first request, if it was read already.

    Attributes:
        scope: Encloses the task.
    """

    __slots__ = ("_connection", "_head", "_service", "_wire", "scope")

    def __init__(self, connection: Http1RequestConnection, head: Http1RequestHead | None) -> None:
        self._connection = connection
        self._wire = connection.wire
        self._service = connection.service
        self._head = head
        self.scope = trio.CancelScope()

    @property
    def _left(self) -> bool:
        """Whether the connection is not ours to go on with any more."""
        return self._connection.work is not self

    async def run(
        self, request: ResponseFraming | None = None, answer: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Serve requests until none is there that could be served in a turn, beginning with one that is to be answered."""
        rest = None
        try:
            with self.scope:
                try:
                    if request is None or answer is None or await self._serve(request, answer):
                        rest = await self._serve_all()
                except RequestError as fault:
                    await self._refuse(fault)
            if self._left:
                return
        finally:
            if not self._left and rest is None:
                self._connection.close()
        if rest is not None:
            await self._connection.serve_http2(rest)

    async def end(self, fault: RequestError | None) -> None:
        """End the connection, having told the client what is wrong."""
        try:
            with self.scope:
                if fault is not None:
                    await self._refuse(fault)
                else:
                    await self._linger()
        finally:
            self._connection.close()

    # -- requests --------------------------------------------------------------------------------

    async def _serve_all(self) -> bytes | None:
        """Serve requests; returns what a client has said that speaks HTTP/2."""
        wire = self._wire
        while (head := await self._next_head()) is not None:
            if head.leaves:
                if head.judged.verb == "PRI":
                    if wire.served:
                        raise RequestError(400, "HTTP/2 begins with the connection")
                    return head.raw + wire.requests.take_rest()
                await self._upgrade(head)
                break
            wire.served = True
            if not await self._serve(*self._prepare(head)):
                break
        return None

    def _prepare(self, head: Http1RequestHead) -> tuple[ResponseFraming, Callable[[], Awaitable[None]]]:
        """Return a request, and what serves it."""
        wire, facts = self._wire, self._service.facts(head)
        if facts is not None:
            request = Http1Request(wire, head.judged, head, self._connection, wire.peer, facts, self.scope)
            return request, partial(HttpTaskSink(facts.endpoint, request).serve, facts.endpoint.respond)
        exchange = Http1Exchange(wire, head.judged, head, self._connection)
        return exchange, AsgiCall(self._service.app.asgi, exchange, self._asgi_scope()).run

    def _asgi_scope(self) -> ConnectionScope:
        return scope_of(self._wire.stream, self._service.app.state)

    async def _serve(self, request: ResponseFraming, answer: Callable[[], Awaitable[None]]) -> bool:
        """Serve one request, and return whether there may be another one for this task."""
        wire = self._wire
        with ReportErrors(partial(self._report, request)):
            try:
                await answer()
            except* trio.BrokenResourceError:
                pass  # of the client, which is seen below
        if self._left:
            return False
        if request.fault is not None:
            raise request.fault
        if wire.gone or not request.ended:
            wire.gone = True  # nothing can follow an answer that has no end
            return False
        if request.closes or wire.retired:
            if wire.requests.body is not None or wire.requests.waiting:
                await self._linger()
            return False
        return wire.requests.body is None or await self._discard_body()

    async def _upgrade(self, head: Http1RequestHead) -> None:
        """Have the connection carry a WebSocket, or tell its client why not; in neither case does it come back to HTTP/1.1."""
        if self._wire.requests.body is not None:
            raise RequestError(400, "a request to upgrade has no body")
        facts, opened, refused = self._service.facts(head), False, None
        websockets = None if facts is None else facts.endpoint.websockets
        with ReportErrors(partial(self._service.app.report, head=head.judged)):
            if websockets is None:
                refused = await self._call(head)
            else:
                refused = await self._open(websockets, head.judged)
            opened = True
        if not opened:
            raise failed()
        if refused is not None:
            await self._answer_last(refused)

    async def _open(self, websockets: WebSockets, head: RequestHead) -> HttpResponse | None:
        """Open a WebSocket, whose connection is not ours from then on; or return why there is none."""
        wire, connection = self._wire, self._connection
        upgrade = websockets.judge(head) or read_upgrade(head)
        if isinstance(upgrade, HttpResponse):
            return upgrade
        channel = await websockets.open(head, wire.peer, upgrade.subprotocols)
        if isinstance(channel, HttpResponse):
            return channel
        accepted = upgrade.encode_accept(select(upgrade.subprotocols))
        rest, seconds = wire.requests.take_rest(), wire.options.websocket_ping_interval
        frames = WebSocketCodec(websockets.max_bytes, trio.current_time, accepted, rest)
        carrier = Http1WebSocketTransport(connection, head)
        speaker = WebSocketConnection(carrier, websockets, channel, frames, ping_seconds=seconds)
        connection.hand_to(speaker)
        speaker.begin()
        return None

    async def _call(self, head: Http1RequestHead) -> HttpResponse | None:
        """Have the application serve a WebSocket, to its end; or return why there is none."""
        wire, upgrade = self._wire, read_upgrade(head.judged)
        if isinstance(upgrade, HttpResponse):
            return upgrade
        app, seconds = self._service.app, wire.options.websocket_ping_interval
        early = bool(wire.requests.take_rest())
        opening = Http1Opening(wire, upgrade)
        websocket = AsgiWebSocketCall(app.asgi, opening, early=early, ping_seconds=seconds)
        scope = self._asgi_scope().describe("websocket", line_of(head))
        await websocket.run(scope, partial(app.report, head=head.judged))
        if opening.unsaid:  # it was refused with a body that is not as long as was said, or with none
            return failed().answer()
        if not websocket.opened:
            await self._linger()
        return None

    def _report(self, request: ResponseFraming, failure: BaseException) -> None:
        """Tell that the application failed: it is somebody else's code, and its client gets an answer."""
        self._service.app.report(failure, request.head)
        if not request.started:
            request.fault = failed()

    async def _next_head(self) -> Http1RequestHead | None:
        head, self._head = self._head, None
        if head is not None:
            return head
        # Context variables that are set while a request is served, such as a principal, are not for the next one. They may be
        # a handler's, in whose turn this task was started.
        trio.lowlevel.current_task().context = self._service.context.copy()
        wire, requests = self._wire, self._wire.requests
        if requests.waiting:
            # A client that sends many requests at once does not get all of our time.
            await trio.lowlevel.checkpoint()
        # One that is to end begins to wait where it did before it had this task.
        wire.wait(IDLE, 0 if wire.retired else wire.options.keep_alive_timeout)
        while True:
            if requests.waiting:
                head = requests.next_head()
                if head is not None:
                    wire.stop_waiting()
                    return head
                if requests.waiting and wire.doing is IDLE:
                    wire.wait(ConnectionPhase.HEAD, wire.options.head_timeout)
            if self._connection.reactor is not None:
                self._connection.resume()
                return None
            data = await wire.receive()
            if data is None and wire.doing is ConnectionPhase.HEAD and not wire.retired:
                wire.stop_waiting()
                raise too_slow("head_timeout")
            if not data:
                return None
            requests.receive(data)

    # -- the end ---------------------------------------------------------------------------------

    async def _refuse(self, fault: RequestError) -> None:
        """Answer what is no request, and end the connection: where the next one begins is not known."""
        await self._answer_last(self._service.app.refuse(fault, self._wire.peer))

    async def _answer_last(self, reply: HttpResponse) -> None:
        """Write an answer that ends the connection."""
        await self._wire.send(encode_answer(reply.status, reply.headers, reply.body, CLOSE))
        await self._linger()

    async def _discard_body(self) -> bool:
        """Throw away the rest of a body nobody wanted, and return whether its end came in time."""
        wire, size = self._wire, 0
        wire.wait(ConnectionPhase.DISCARDING, wire.options.unread_body_timeout)
        while True:
            size += len(wire.requests.take_body())
            if wire.requests.body is None:
                return True
            if size > wire.options.unread_body_bytes:
                return False
            data = await wire.receive()
            if not data:
                return False
            wire.requests.receive(data)

    async def _linger(self) -> None:
        """Wait until the client has read the answer, as far as it may still be sending.

        The kernel resets a connection that is closed with something unread, and the client then loses what it was told.
        """
        wire = self._wire
        if wire.gone:
            return
        wire.end_sending()
        left = wire.options.unread_body_bytes
        wire.wait(ConnectionPhase.DISCARDING, wire.options.unread_body_timeout)
        while left > 0:
            data = await wire.receive()
            if not data:
                return
            left -= len(data)
