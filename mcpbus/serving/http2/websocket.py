"""A WebSocket for a client that asks for one over HTTP/2, by CONNECT with a protocol (RFC 8441)."""

from functools import partial

import trio

from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.messages import Answer, refusal
from mcpbus.protocol.websocket import select
from mcpbus.serving.http2.request import Http2Request
from mcpbus.serving.http2.tunnel import Connection, Tunnel
from mcpbus.serving.websocket.connection import WebSocketConnection
from mcpbus.serving.websocket.frames import Frames
from mcpbus.serving.websocket.handshake import judge_version, offered_subprotocols
from mcpbus.transports.websocket import WebSockets


async def open_websocket(
    connection: Connection, request: Http2Request, websockets: WebSockets, *, ping_seconds: float
) -> None:
    """Open a WebSocket for a request, or tell its client why not.

    Args:
        connection: The connection.
        request: The request, which goes on until the WebSocket ends.
        websockets: The endpoint.
        ping_seconds: How long it may be quiet before the client is asked whether it is there.
    """
    head = request.head
    refused = websockets.judge(head) or judge_version(head)
    if refused is None and request.read.length is not None:
        refused = refusal(400, invalid_request("CONNECT has no body"))
    if refused is not None:
        await request.answer(refused)
        return
    offered = offered_subprotocols(head)
    channel = await websockets.open(head, request.peer, offered)
    if isinstance(channel, Answer):
        await request.answer(channel)
        return
    if request.gone:
        channel.close()
        return
    selected = select(offered)
    request.say_head(
        200, [] if selected is None else [(b"sec-websocket-protocol", selected.encode())], last=False
    )
    connection.write_now()
    frames = Frames(websockets.max_bytes, trio.current_time)
    make = partial(
        WebSocketConnection,
        websockets=websockets,
        channel=channel,
        frames=frames,
        ping_seconds=ping_seconds,
    )
    Tunnel(connection, request, make).begin(ping_seconds)
