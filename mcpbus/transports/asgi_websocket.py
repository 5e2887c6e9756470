"""The ASGI shell over `websocket`: translates, and decides nothing."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import trio

from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.websocket import FAREWELL_SECONDS, CloseCode, select
from mcpbus.transports.duplex import DuplexChannel
from mcpbus.transports.websocket import WebSockets

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

GONE: Final = "the client has gone"
"""What ASGI says of it is any OSError (since its version 2.4); here there is one exception for it."""


async def say(send: Send, message: MutableMapping[str, Any]) -> None:
    """Give a message to an ASGI server.

    Raises:
        trio.BrokenResourceError: The client has gone.
    """
    try:
        await send(message)
    except OSError as error:
        raise trio.BrokenResourceError(GONE) from error


class AsgiWebSocketServer:
    """One connection, as an ASGI server shows it to its application.

    Args:
        websockets: The endpoint.
        scope: Of ASGI's type `websocket`.
        receive: As ASGI has it.
        send: As ASGI has it.
    """

    def __init__(
        self, websockets: WebSockets, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        self._websockets = websockets
        self._scope = scope
        self._receive = receive
        self._send = send

    async def serve(self, head: RequestHead, peer: Peer) -> None:
        """Serve the connection, to its end.

        Args:
            head: The upgrade request.
            peer: From where it came.
        """
        await self._receive()  # websocket.connect
        offered = self._scope.get("subprotocols") or ()
        opened = self._websockets.judge(head) or await self._websockets.open(head, peer, offered)
        if isinstance(opened, HttpResponse):
            await self._refuse(opened)
            return
        with opened as channel:
            await say(self._send, {"type": "websocket.accept", "subprotocol": select(offered)})
            code = await self._run(channel)
        if code is not None:
            await self._close(channel, code)

    async def _run(self, channel: DuplexChannel) -> CloseCode | None:
        """Serve an open connection; return with which code to close it, if it is not gone or taken for dead."""
        code: CloseCode | None = None

        async def send(messages: list[bytes]) -> None:
            for message in messages:
                await say(self._send, {"type": "websocket.send", "text": message.decode()})

        async def write() -> None:
            nonlocal code
            if await channel.write(send):
                code = self._websockets.why_ended()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            code = await self._read(channel)
            nursery.cancel_scope.cancel()
        return code

    async def _read(self, channel: DuplexChannel) -> CloseCode | None:
        """Take what the client sends until it leaves; return why it must, if it did not."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return None
            text = message.get("text")
            if text is None:
                return CloseCode.UNSUPPORTED_DATA
            data = text.encode("utf-8", "surrogatepass")
            if len(data) > self._websockets.max_bytes:
                self._websockets.note_too_big(channel.owner)
                return CloseCode.MESSAGE_TOO_BIG
            await channel.receive(data)

    async def _close(self, channel: DuplexChannel, code: CloseCode) -> None:
        websockets = self._websockets
        with websockets.reached.writing(websockets.limits.write_deadline, channel.owner):
            await say(self._send, {"type": "websocket.close", "code": int(code), "reason": code.reason})
        with trio.move_on_after(FAREWELL_SECONDS):
            while (await self._receive())["type"] != "websocket.disconnect":
                pass

    async def _refuse(self, reply: HttpResponse) -> None:
        if "websocket.http.response" not in (self._scope.get("extensions") or {}):
            code = int(CloseCode.POLICY_VIOLATION)
            await say(self._send, {"type": "websocket.close", "code": code, "reason": "refused"})
            return
        # The connection has been promised to the other protocol: it cannot go on in HTTP/1.1.
        ends = [(b"connection", b"close")] if self._scope.get("http_version", "1.1") == "1.1" else []
        await say(
            self._send,
            {
                "type": "websocket.http.response.start",
                "status": reply.status,
                "headers": [*reply.headers, *ends],
            },
        )
        await say(self._send, {"type": "websocket.http.response.body", "body": reply.body})
