"""A WebSocket over HTTP/2: the CONNECT that opens it, and the stream that carries its bytes (RFC 8441)."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.messages import HttpResponse, refusal
from mcpbus.protocol.websocket import select
from mcpbus.serving.http2.request import Http2Request, Http2RequestConnection
from mcpbus.serving.reactor import Turn
from mcpbus.serving.websocket.codec import WebSocketCodec
from mcpbus.serving.websocket.connection import WebSocketConnection
from mcpbus.serving.websocket.handshake import offered_subprotocols, validate_version
from mcpbus.transports.response_sinks import CoalescedWriter
from mcpbus.transports.websocket import WebSockets


class _Piece:
    """Something that was said, until it is known what came of it."""

    __slots__ = ("known", "whole")

    def __init__(self) -> None:
        self.known = trio.Event()
        self.whole = False

    def sent(self, whole: bool) -> None:
        self.whole = whole
        self.known.set()


class Http2WebSocketTransport:
    """A `WebSocketTransport`, as long as its request lasts.

    Args:
        connection: The connection.
        request: The request that asked for it.
    """

    __slots__ = ("_connection", "_piece", "_request")

    def __init__(self, connection: Http2RequestConnection, request: Http2Request) -> None:
        self._connection = connection
        self._request = request
        self._piece = _Piece()

    # -- what comes ------------------------------------------------------------------------------

    def watch(self, turn: Turn) -> bool:
        """See `WebSocketTransport`. What is there already is to be received."""
        body = self._request.body
        if body or body.over:
            return False
        self._request.turn = turn
        return True

    def forget(self) -> None:
        """See `WebSocketTransport`."""
        self._request.turn = None

    @property
    def scope(self) -> trio.CancelScope:
        """See `WebSocketTransport`."""
        return self._request.scope

    def receive_now(self) -> bytes | None:
        """See `WebSocketTransport`."""
        body = self._request.body
        return body.take() if body or body.over else None

    async def receive(self) -> bytes:
        """See `WebSocketTransport`."""
        await trio.lowlevel.checkpoint()
        await self._request.body.more()
        return self._request.body.take()

    # -- what is said ----------------------------------------------------------------------------

    @property
    def in_turn(self) -> bool:
        """See `WebSocketTransport`."""
        return self._connection.writer.in_turn or self._connection.service.coalescer.in_turn

    def write_later(self, writer: CoalescedWriter) -> None:
        """See `WebSocketTransport`."""
        self._connection.service.coalescer.add_in_turn(writer)

    def send_now(self, data: bytes) -> bytes | None:
        """See `WebSocketTransport`. What the windows or the connection hold up is said all the same: `send` waits for it, and says nothing."""
        self._piece = piece = _Piece()
        self._request.answering.say(data, last=False, sent=piece.sent)
        self._connection.writer.flush_now()
        if not piece.known.is_set():
            return data
        return b"" if piece.whole else None

    async def send(self, data: bytes) -> bool:  # noqa: ARG002
        """See `WebSocketTransport`."""
        piece = self._piece
        await piece.known.wait()
        return piece.whole

    # -- time, and the end -----------------------------------------------------------------------

    def quiet_for(self, seconds: float) -> None:
        """See `WebSocketTransport`."""
        self._request.wake_at(trio.current_time() + seconds)

    def start(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `WebSocketTransport`."""
        self._connection.start(self._request, function, *args)

    def fail(self, failure: BaseException) -> None:
        """See `WebSocketTransport`."""
        self._request.fail(failure)

    def close(self) -> None:
        """See `WebSocketTransport`."""
        self._request.hang_up()


async def open_websocket(
    connection: Http2RequestConnection, request: Http2Request, websockets: WebSockets
) -> None:
    """Open a WebSocket for a request, or tell its client why not.

    Args:
        connection: The connection.
        request: The request, which goes on until the WebSocket ends.
        websockets: The endpoint.
    """
    head = request.head
    refused = websockets.judge(head) or _judge(request)
    if refused is not None:
        await request.answer(refused)
        return
    offered = offered_subprotocols(head)
    channel = await websockets.open(head, request.peer, offered)
    if isinstance(channel, HttpResponse):
        await request.answer(channel)
        return
    if request.gone:
        channel.close()
        return
    selected = select(offered)
    _accept(request, selected)
    connection.writer.flush_now()
    carrier, frames = (
        Http2WebSocketTransport(connection, request),
        WebSocketCodec(websockets.max_bytes, trio.current_time),
    )
    seconds = connection.service.options.websocket_ping_interval
    request.speaker = speaker = WebSocketConnection(
        carrier, websockets, channel, frames, ping_seconds=seconds
    )
    carrier.quiet_for(seconds)
    speaker.begin()


def _judge(request: Http2Request) -> HttpResponse | None:
    """Return why a request for a WebSocket is refused, if it is not as it must be."""
    refused = validate_version(request.head)
    if refused is None and request.read.length is not None:
        refused = refusal(400, invalid_request("CONNECT has no body"))
    return refused


def _accept(request: Http2Request, subprotocol: str | None) -> None:
    fields = [] if subprotocol is None else [(b"sec-websocket-protocol", subprotocol.encode("ascii"))]
    request.answering.say_head(200, fields)
