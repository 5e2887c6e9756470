"""A WebSocket for a client that asks for one over HTTP/2, by CONNECT with a protocol (RFC 8441)."""

import trio

from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.messages import HttpResponse, refusal
from mcpbus.protocol.websocket import select
from mcpbus.serving.http2.request import Http2Request, Http2RequestConnection
from mcpbus.serving.http2.tunnel import Http2WebSocketTransport
from mcpbus.serving.websocket.connection import WebSocketConnection
from mcpbus.serving.websocket.frames import WebSocketCodec
from mcpbus.serving.websocket.handshake import offered_subprotocols, validate_version
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


def _judge(request: Http2Request) -> HttpResponse | None:
    """Return why a request for a WebSocket is refused, if it is not as it must be."""
    refused = validate_version(request.head)
    if refused is None and request.read.length is not None:
        refused = refusal(400, invalid_request("CONNECT has no body"))
    return refused


def _accept(request: Http2Request, subprotocol: str | None) -> None:
    fields = [] if subprotocol is None else [(b"sec-websocket-protocol", subprotocol.encode("ascii"))]
    request.answering.say_head(200, fields)
