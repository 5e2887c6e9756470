"""WebSocket: one connection that carries everything, one JSON-RPC message in each text message.

The whole binding is written down in ``docs/websocket.md``. The rules are those of every shared channel: the connection
is the legacy session, modern requests bring what they need, and when the connection ends all that is in flight is
cancelled. Nothing of the upgrade request is taken for a request's metadata.

Here is who may connect. Who carries the messages is somebody else's affair.
"""

from collections.abc import Hashable, Sequence

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.hub import Hub
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.head_validation import HeadValidator
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, answer, refusal
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.websocket import SUBPROTOCOL, CloseCode
from mcpbus.transports import responses
from mcpbus.transports.access_control import AccessControl, authorize
from mcpbus.transports.duplex import DuplexChannel


class WebSockets:
    """The endpoint of an open bus, for WebSockets.

    Args:
        bus: The bus.
        heads: The endpoint's own judge of what every client sends.
        access: The endpoint's own.

    Attributes:
        limits: Those of the bus.
        budget: Where it is counted what waits for clients.
        reached: Where it is noted that a limit was reached.
        max_bytes: How long a message of a client may be.
    """

    def __init__(self, bus: Hub, heads: HeadValidator, access: AccessControl) -> None:
        self._bus = bus
        self._heads = heads
        self._access = access
        self.limits = bus.limits
        self.budget = bus.budget
        self.reached = bus.limit_monitor
        self.max_bytes = heads.options.max_body_bytes

    def judge(self, head: RequestHead) -> HttpResponse | None:
        """Return why there is no WebSocket for a request to upgrade, as far as that has nothing to do with how it asks."""
        refused = self._heads.validate_caller(head)
        options = self._heads.options
        if refused is None and (not options.websocket or head.path != options.path):
            refused = answer(404, b"text/plain", b"Not found: there is no WebSocket here\n")
        return None if refused is None else self._access.refusals.note(refused, head, None)

    async def open(
        self, head: RequestHead, peer: Peer, offered: Sequence[str]
    ) -> HttpResponse | DuplexChannel:
        """Open a connection for a request to upgrade that `judge` lets pass.

        Args:
            head: The request.
            peer: From where it came.
            offered: The subprotocols that it offers.

        Returns:
            The channel, whose block has to be left; or what the request is refused with. Then nothing was allocated.
        """
        principal, refused = await authorize(self._bus.backend, self._heads, head, peer)
        refused = refused or self._access.lacking(principal)
        if refused is not None:
            return self._access.refuse(refused, head, peer)
        if offered and SUBPROTOCOL not in offered:
            return refusal(
                400, invalid_request(f"Sec-WebSocket-Protocol must offer {SUBPROTOCOL}, or nothing")
            )
        try:
            return DuplexChannel(self._bus, principal, self._heads.origin(head, peer))
        except ServerOverloaded as error:
            return responses.overload(error)

    def why_ended(self) -> CloseCode:
        """Return with which code to close a connection whose channel the server has ended."""
        return CloseCode.GOING_AWAY if self._bus.admission.closed else CloseCode.NORMAL

    def note_too_big(self, owner: Hashable) -> None:
        """Note that a message was too long, and that its connection is closed for it."""
        self.reached.note("max_body_bytes", owner, "a WebSocket was closed")
