"""WebSocket: one connection that carries everything, one JSON-RPC message in each text message.

The whole binding is written down in ``docs/websocket.md``. The rules are those of every shared channel: the connection
is the legacy session, modern requests bring what they need, and when the connection ends all that is in flight is
cancelled. Nothing of the upgrade request is taken for a request's metadata.

Here is who may connect, and with which codes connections are closed. Who carries the messages is somebody else's affair.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from mcpbus.core.admission import Overloaded
from mcpbus.core.hub import Hub
from mcpbus.core.session import Session
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.messages import Answer, Head, answer, refusal
from mcpbus.protocol.http.validation import Exchange
from mcpbus.protocol.owners import Peer
from mcpbus.transports import answers
from mcpbus.transports.authorizing import authorize, lacking, refuse_lacking
from mcpbus.transports.duplex import Channel

SUBPROTOCOL: Final = "mcp"

FAREWELL_SECONDS: Final = 1.0
"""How long a client that was told of the end has to say so too. Closed before that, the socket could be reset, and the code lost."""


class CloseCode(IntEnum):
    """With which codes the server closes (RFC 6455, section 7.4.1, and the registry that it sets up)."""

    NORMAL = 1000
    """The server has ended the session."""
    GOING_AWAY = 1001
    """The server shuts down."""
    PROTOCOL_ERROR = 1002
    """What came is not as RFC 6455 has it."""
    UNSUPPORTED_DATA = 1003
    """A binary message came."""
    INVALID_DATA = 1007
    """A text message is not UTF-8."""
    POLICY_VIOLATION = 1008
    """Frames came in numbers that bring nothing; or the upgrade was refused, by an ASGI server that cannot say it in HTTP."""
    MESSAGE_TOO_BIG = 1009
    """A message was longer than it may be."""
    INTERNAL_ERROR = 1011
    """The server failed."""
    TRY_AGAIN_LATER = 1013
    """Too much is kept in memory, and in a message that is unfinished the most."""

    @property
    def reason(self) -> str:
        """The same for people."""
        return self.name.lower().replace("_", " ")


class WebSockets:
    """The endpoint of an open bus, for WebSockets.

    Args:
        bus: The bus.
        exchange: The endpoint's own judge, for what is asked of every client.

    Attributes:
        bus: The same.
    """

    def __init__(self, bus: Hub, exchange: Exchange[Session]) -> None:
        self.bus = bus
        self._exchange = exchange

    @property
    def max_bytes(self) -> int:
        """How long a message of a client may be."""
        return self._exchange.options.max_body_bytes

    def judge(self, head: Head) -> Answer | None:
        """Return why there is no WebSocket for a request to upgrade, as far as that has nothing to do with how it asks."""
        refused = self._exchange.judge_caller(head)
        if refused is not None:
            return refused
        options = self._exchange.options
        if not options.websocket or head.path != options.path:
            return answer(404, b"text/plain", b"Not found: there is no WebSocket here\n")
        return None

    async def open(self, head: Head, peer: Peer, offered: Sequence[str]) -> Answer | Channel:
        """Open a connection for a request to upgrade that `judge` lets pass.

        Args:
            head: The request.
            peer: From where it came.
            offered: The subprotocols that it offers.

        Returns:
            The channel, whose block has to be left; or what the request is refused with. Then nothing was allocated.
        """
        principal, refused = await authorize(self.bus.server, head, peer)
        if refused is not None:
            return refused
        refused = refuse_lacking(self.bus.server, lacking(self.bus.server, principal))
        if refused is not None:
            return refused
        if offered and SUBPROTOCOL not in offered:
            return refusal(
                400, invalid_request(f"Sec-WebSocket-Protocol must offer {SUBPROTOCOL}, or nothing")
            )
        try:
            return Channel(self.bus, principal, self._exchange.origin(head, peer))
        except Overloaded as error:
            return answers.overload(error)

    def why_ended(self) -> CloseCode:
        """Return with which code to close a connection whose channel the server has ended."""
        return CloseCode.GOING_AWAY if self.bus.admission.closed else CloseCode.NORMAL

    def note_too_big(self, channel: Channel) -> None:
        """Note that a message was too long, and that its connection is closed for it."""
        self.bus.reached.note("max_body_bytes", channel.session.owner, "a WebSocket was closed")


def select(offered: Sequence[str]) -> str | None:
    """Return the subprotocol to select: one that was not offered must not be (RFC 6455, section 4.2.2)."""
    return SUBPROTOCOL if offered else None
