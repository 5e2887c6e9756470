"""A WebSocket for a client that asks for one over HTTP/2, by CONNECT with a protocol (RFC 8441)."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import trio

from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.messages import HttpResponse, refusal
from mcpbus.protocol.websocket import select
from mcpbus.serving.asgi_call import ConnectionScope
from mcpbus.serving.http2.asgi import Http2Exchange
from mcpbus.serving.http2.request import Http2Request, Http2RequestConnection
from mcpbus.serving.http2.tunnel import Http2WebSocketTransport
from mcpbus.serving.websocket.asgi import AsgiWebSocketCall
from mcpbus.serving.websocket.connection import WebSocketConnection
from mcpbus.serving.websocket.frames import WebSocketCodec
from mcpbus.serving.websocket.handshake import offered_subprotocols, validate_version
from mcpbus.transports.answers import HeaderList
from mcpbus.transports.websocket import WebSockets


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


async def call_websocket(
    connection: Http2RequestConnection, request: Http2Request, scope: ConnectionScope
) -> None:
    """Have the application serve a WebSocket through ASGI, to its end, or tell the client why there is none.

    Args:
        connection: The connection.
        request: The request.
        scope: What the application is told of the connection.
    """
    refused = _judge(request)
    if refused is not None:
        await request.answer(refused)
        return
    app, seconds = connection.service.app, connection.service.options.websocket_ping_interval
    exchange = Http2Exchange(request, connection.writer.flush_soon)
    websocket = AsgiWebSocketCall(
        app.asgi, Http2Opening(request, exchange), early=False, ping_seconds=seconds
    )
    await websocket.run(scope.describe("websocket", exchange.line), partial(app.report, head=request.head))
    if websocket.opened:
        request.hang_up()


class Http2Opening:
    """An `WebSocketRequest` of HTTP/2.

    Args:
        request: The request.
        exchange: The same, as it is refused.
    """

    __slots__ = ("_exchange", "_request")

    def __init__(self, request: Http2Request, exchange: Http2Exchange) -> None:
        self._request = request
        self._exchange = exchange

    @property
    def subprotocols(self) -> Sequence[str]:
        """See `WebSocketRequest`."""
        return offered_subprotocols(self._request.head)

    async def receive(self) -> bytes:
        """See `WebSocketRequest`."""
        await trio.lowlevel.checkpoint()
        await self._request.body.more()
        return self._request.body.take()

    async def send(self, data: bytes) -> None:
        """See `WebSocketRequest`."""
        with suppress(trio.BrokenResourceError):
            answering = self._request.answering
            await answering.wait_sent(partial(answering.say, data, last=False))

    def accept(self, subprotocol: str | None, fields: HeaderList) -> None:
        """See `WebSocketRequest`."""
        if not self._request.gone:
            _accept(self._request, subprotocol, fields)

    def refuse(self, status: int, fields: HeaderList) -> None:
        """See `WebSocketRequest`."""
        if not self._request.gone:
            self._exchange.begin(status, fields, measured=False)

    async def say(self, data: bytes, *, more: bool) -> None:
        """See `WebSocketRequest`."""
        await trio.lowlevel.checkpoint()
        if not self._request.gone:
            await self._exchange.say(data, more=more)


def _judge(request: Http2Request) -> HttpResponse | None:
    """Return why a request for a WebSocket is refused, if it is not as it must be."""
    refused = validate_version(request.head)
    if refused is None and request.read.length is not None:
        refused = refusal(400, invalid_request("CONNECT has no body"))
    return refused


def _accept(request: Http2Request, subprotocol: str | None, more: HeaderList = ()) -> None:
    fields = [*more]
    if subprotocol is not None:
        fields.append((b"sec-websocket-protocol", subprotocol.encode("ascii")))
    request.answering.say_head(200, fields)
