"""What an endpoint refuses for who asks, or for how much they send: in the same words over every transport of HTTP."""

from collections.abc import Iterable
from typing import Any

from mcpbus.core.hub import Hub
from mcpbus.protocol.http.head_validation import HeadValidator
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer, owner_of
from mcpbus.transports import needed_scopes
from mcpbus.transports.needed_scopes import Asked
from mcpbus.transports.refusals import RefusalLog


class AccessControl:
    """Access to one endpoint of an open bus.

    Args:
        bus: The bus.
        heads: Tells from where requests come.

    Attributes:
        refusals: Is told what is refused.
    """

    def __init__(self, bus: Hub, heads: HeadValidator) -> None:
        self._bus = bus
        self._heads = heads
        self.refusals = RefusalLog()

    def refuse(self, refusal: HttpResponse, head: RequestHead, peer: Peer) -> HttpResponse:
        """Tell the log why a request is refused, if this is what the answer is; return the answer.

        Args:
            refusal: The answer.
            head: The request.
            peer: From where its connection comes, which may be a proxy's.
        """
        return self.refusals.note(refusal, head, self._heads.origin(head, peer))

    def refuse_body(
        self, refusal: HttpResponse, head: RequestHead, principal: Any, peer: Peer
    ) -> HttpResponse:
        """Return why a POST is refused whose body is not judged, having noted it if its length is the reason."""
        insufficient = self.lacking(principal)
        if insufficient is not None:
            return self.refuse(insufficient, head, peer)
        if refusal is self._heads.too_large:
            owner = owner_of(principal, self._heads.origin(head, peer))
            self._bus.limit_monitor.note("max_body_bytes", owner, "a message was refused")
        return refusal

    def lacking(self, principal: Any, requests: Iterable[Asked] = ()) -> HttpResponse | None:
        """Return why somebody may not do what they ask for, if their token has to allow more; several requests are refused as a whole."""
        backend = self._bus.backend
        auth = backend.auth
        if auth is None:
            return None
        missing = needed_scopes.lacking(backend, principal, requests)
        return auth.step_up(missing) if missing else None
