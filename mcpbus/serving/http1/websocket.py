"""A WebSocket for an application that is called through ASGI, whose client asks for it over HTTP/1.1."""

from collections.abc import Sequence

from mcpbus.serving.http1.encoder import CLOSE, encode_head
from mcpbus.serving.http1.wire import ConnectionIO
from mcpbus.serving.websocket.handshake import Upgrade
from mcpbus.transports.answers import HeaderList


class Http1Opening:
    """An `WebSocketRequest` of HTTP/1.1.

    Args:
        wire: The connection, which carries nothing else any more.
        upgrade: What the client asks for.

    Attributes:
        unsaid: The head of an answer that has begun, of which nothing has gone out.
    """

    __slots__ = ("_upgrade", "_wire", "unsaid")

    def __init__(self, wire: ConnectionIO, upgrade: Upgrade) -> None:
        self._wire = wire
        self._upgrade = upgrade
        self.unsaid = b""

    @property
    def subprotocols(self) -> Sequence[str]:
        """See `WebSocketRequest`."""
        return self._upgrade.subprotocols

    async def receive(self) -> bytes | None:
        """See `WebSocketRequest`."""
        return await self._wire.receive()

    async def send(self, data: bytes) -> None:
        """See `WebSocketRequest`."""
        head, self.unsaid = self.unsaid, b""
        await self._wire.send(head + data)

    def accept(self, subprotocol: str | None, fields: HeaderList) -> None:
        """See `WebSocketRequest`."""
        self.unsaid = self._upgrade.encode_accept(subprotocol, fields)

    def refuse(self, status: int, fields: HeaderList) -> None:
        """See `WebSocketRequest`."""
        self.unsaid = encode_head(status, fields, CLOSE)

    async def say(self, data: bytes, *, more: bool) -> None:  # noqa: ARG002 - it ends with the connection
        """See `WebSocketRequest`."""
        await self.send(data)
