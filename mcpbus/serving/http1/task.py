"""A task of an HTTP/1.1 connection, for the few things that wait and are not an endpoint's request.

These are the requests of other ASGI applications, the upgrade to a WebSocket, responses in several pieces that a store or another
process has, the rest of a body that no handler wants, and the end of a connection whose client still sends. Then the connection
goes on in turns, or is closed.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from mcpbus.core.concurrency import ReportErrors
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.websocket import select
from mcpbus.serving.asgi import AsgiCall, ConnectionScope, scope_of
from mcpbus.serving.http1.asgi import Http1Exchange
from mcpbus.serving.http1.connection_io import ConnectionPhase
from mcpbus.serving.http1.encoder import CLOSE, encode_answer
from mcpbus.serving.http1.head import Http1RequestHead
from mcpbus.serving.http1.request import Http1RequestConnection, ResponseFraming
from mcpbus.serving.http1.websocket_transport import Http1WebSocketTransport
from mcpbus.serving.request_error import RequestError, failed, no_websocket
from mcpbus.serving.websocket.codec import WebSocketCodec
from mcpbus.serving.websocket.connection import WebSocketConnection
from mcpbus.serving.websocket.handshake import read_upgrade
from mcpbus.transports.websocket import WebSockets


class ConnectionTask:
    """The work of one task for a connection.

    Args:
        connection: The connection.
    """

    __slots__ = ("_connection", "_service", "_wire")

    def __init__(self, connection: Http1RequestConnection) -> None:
        self._connection = connection
        self._wire = connection.wire
        self._service = connection.service

    @property
    def _left(self) -> bool:
        """Whether the connection goes on without this task."""
        return self._connection.work is not self

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do one of the following, and close the connection if it does not go on after that."""
        try:
            try:
                await work()
            except RequestError as fault:
                await self._refuse(fault)
        finally:
            if not self._left:
                self._connection.close()

    async def end(self, fault: RequestError | None) -> None:
        """End the connection, having told the client of a fault if there is one."""
        if fault is None:
            await self._linger()
        else:
            await self._refuse(fault)

    async def discard(self) -> None:
        """Throw away the rest of a body; the connection goes on if its end comes in time."""
        if await self._discard_body():
            self._connection.go_on()

    async def answer(self, request: ResponseFraming, answer: Callable[[], Awaitable[None]]) -> None:
        """Answer a request."""
        wire = self._wire
        with ReportErrors(partial(self._report, request)):
            try:
                await answer()
            except* trio.BrokenResourceError:
                pass  # of the client, which is seen below
        if self._left:
            return
        if request.fault is not None:
            raise request.fault
        if wire.gone or not request.ended:
            wire.gone = True  # nothing can follow an answer that has no end
        else:
            self._connection.answered(request)

    async def serve(self, head: Http1RequestHead) -> None:
        """Serve a request that is no endpoint's, or whose client leaves HTTP/1.1 with it."""
        wire = self._wire
        if head.leaves:
            if head.judged.verb == "PRI":
                if wire.served:
                    raise RequestError(400, "HTTP/2 begins with the connection")
                await self._connection.serve_http2(head.raw + wire.requests.take_rest())
            else:
                await self._upgrade(head)
            return
        wire.served = True
        exchange = Http1Exchange(wire, head.judged, head, self._connection)
        await self.answer(exchange, AsgiCall(self._service.app.asgi, exchange, self._asgi_scope()).run)

    def _asgi_scope(self) -> ConnectionScope:
        return scope_of(self._wire.stream, self._service.app.state)

    async def _upgrade(self, head: Http1RequestHead) -> None:
        """Have the connection carry a WebSocket, or tell its client why not; in neither case does it come back to HTTP/1.1."""
        if self._wire.requests.body is not None:
            raise RequestError(400, "a request to upgrade has no body")
        facts, opened, refused = self._service.facts(head), False, None
        websockets = None if facts is None else facts.endpoint.websockets
        if websockets is None:
            raise no_websocket()
        with ReportErrors(partial(self._service.app.report, head=head.judged)):
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

    def _report(self, request: ResponseFraming, failure: BaseException) -> None:
        """Tell that the application failed: it is somebody else's code, and its client gets an answer."""
        self._service.app.report(failure, request.head)
        if not request.started:
            request.fault = failed()

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
