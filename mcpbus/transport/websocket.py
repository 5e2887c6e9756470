"""WebSocket: one connection that carries everything, one JSON-RPC message in each text frame.

The whole binding is written down in ``docs/websocket.md``. The rules are those of every shared channel: the connection
is the legacy session, modern requests bring what they need, and when the connection ends all that is in flight is
cancelled. Nothing of the upgrade request is taken for a request's metadata.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import trio

from mcpbus.admission import Overloaded
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.messages import Answer, Head, answer, refusal
from mcpbus.protocol.http.validation import Exchange
from mcpbus.protocol.owners import Peer
from mcpbus.session import Session
from mcpbus.transport import answers
from mcpbus.transport.authorizing import authorize
from mcpbus.transport.channel import Channel

if TYPE_CHECKING:
    from mcpbus.bus import Bus

SUBPROTOCOL: Final = "mcp"

_FAREWELL_SECONDS: Final = 1.0

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class CloseCode(IntEnum):
    """With which codes the server closes (RFC 6455, section 7.4.1)."""

    NORMAL = 1000
    """The server has ended the session."""
    GOING_AWAY = 1001
    """The server shuts down."""
    UNSUPPORTED_DATA = 1003
    """A binary frame came."""
    POLICY_VIOLATION = 1008
    """The upgrade was refused, by an ASGI server that cannot say it in HTTP."""
    MESSAGE_TOO_BIG = 1009
    """A message was longer than it may be."""


class WebSockets:
    """The endpoint of an open bus, for WebSockets.

    Args:
        bus: The bus.
        exchange: The endpoint's own judge, for what is asked of every client.
    """

    def __init__(self, bus: "Bus", exchange: Exchange[Session]) -> None:
        self._bus = bus
        self._exchange = exchange

    async def serve(
        self, scope: MutableMapping[str, Any], head: Head, peer: Peer, receive: Receive, send: Send
    ) -> None:
        """Serve one connection, to its end.

        Args:
            scope: Of ASGI's type `websocket`.
            head: The upgrade request.
            peer: From where it came.
            receive: As ASGI has it.
            send: As ASGI has it.
        """
        await receive()  # websocket.connect
        offered = scope.get("subprotocols") or ()
        opened = await self._open(head, peer, offered)
        if isinstance(opened, Answer):
            await _refuse(scope, send, opened)
            return
        with opened as channel:
            # A subprotocol that was not offered must not be selected (RFC 6455, section 4.2.2).
            await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None})
            code = await self._run(channel, receive, send)
        if code is not None:
            await self._close(channel, receive, send, code)

    async def _open(self, head: Head, peer: Peer, offered: Sequence[str]) -> Answer | Channel:
        options = self._exchange.options
        refused = self._exchange.judge_caller(head)
        if refused is not None:
            return refused
        if not options.websocket or head.path != options.path:
            return answer(404, b"text/plain", b"Not found: there is no WebSocket here\n")
        if offered and SUBPROTOCOL not in offered:
            return refusal(
                400, invalid_request(f"Sec-WebSocket-Protocol must offer {SUBPROTOCOL}, or nothing")
            )
        principal, refused = await authorize(self._bus.server.authenticate, head)
        if refused is not None:
            return refused
        try:
            return Channel(self._bus, principal, self._exchange.origin(head, peer))
        except Overloaded as error:
            return answers.overload(error)

    async def _run(self, channel: Channel, receive: Receive, send: Send) -> CloseCode | None:
        """Serve an open connection; return with which code to close it, if it is not gone or taken for dead."""
        code: CloseCode | None = None

        async def send_frames(messages: list[bytes]) -> None:
            for message in messages:
                await send({"type": "websocket.send", "text": message.decode()})

        async def write() -> None:
            nonlocal code
            if await channel.write(send_frames):
                code = CloseCode.GOING_AWAY if self._bus.admission.closed else CloseCode.NORMAL
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            code = await self._read(channel, receive)
            nursery.cancel_scope.cancel()
        return code

    async def _read(self, channel: Channel, receive: Receive) -> CloseCode | None:
        """Take what the client sends until it leaves; return why it must, if it did not."""
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return None
            text = message.get("text")
            if text is None:
                return CloseCode.UNSUPPORTED_DATA
            data = text.encode("utf-8", "surrogatepass")
            if len(data) > self._exchange.options.max_body_bytes:
                owner = channel.session.owner
                self._bus.reached.note("max_body_bytes", owner, "a WebSocket was closed")
                return CloseCode.MESSAGE_TOO_BIG
            await channel.receive(data)

    async def _close(self, channel: Channel, receive: Receive, send: Send, code: CloseCode) -> None:
        reason = code.name.lower().replace("_", " ")
        bus = self._bus
        with bus.reached.writing(bus.limits.write_deadline, channel.session.owner):
            await send({"type": "websocket.close", "code": int(code), "reason": reason})
        # Closed before the client has answered, the socket could be reset, and the code lost on its way.
        with trio.move_on_after(_FAREWELL_SECONDS):
            while (await receive())["type"] != "websocket.disconnect":
                pass


async def _refuse(scope: MutableMapping[str, Any], send: Send, reply: Answer) -> None:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": int(CloseCode.POLICY_VIOLATION), "reason": "refused"})
        return
    # The connection has been promised to the other protocol: it cannot go on in HTTP/1.1.
    ends = [(b"connection", b"close")] if scope.get("http_version", "1.1") == "1.1" else []
    start = {
        "type": "websocket.http.response.start",
        "status": reply.status,
        "headers": [*reply.headers, *ends],
    }
    await send(start)
    await send({"type": "websocket.http.response.body", "body": reply.body})
