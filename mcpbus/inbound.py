"""A client's request as a transport hands it over, and what it says of whoever sent it."""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mcpbus.admission import InFlight
from mcpbus.features.catalogue import Features
from mcpbus.features.definition import Definition
from mcpbus.protocol.jsonrpc import Request
from mcpbus.protocol.levels import LogLevel
from mcpbus.protocol.meta import ModernClaim, Routing
from mcpbus.protocol.owners import IN_PROCESS, Peer, owner_of
from mcpbus.protocol.results import Tail
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import Line, Setting
from mcpbus.session import LogThreshold, Session
from mcpbus.stream import Stream

if TYPE_CHECKING:
    from mcpbus.bus import Bus

# For all requests whose client cannot change its mind meanwhile: those without a session.
_THRESHOLDS = {level: LogThreshold(level) for level in (None, *LogLevel)}

OpenStream = Callable[[Line, Session | None], Stream]
"""Opens a stream for what is said to a request of this session, or returns the channel that carries it."""


# Neither is kept from the garbage collector: a principal is the author's own, and may know the contexts of its calls.
class Caller(msgspec.Struct, frozen=True):
    """Who asks, under which rules, and what they may see."""

    server: Definition
    features: Features
    """The server's, or the session's over them."""
    revision: Revision
    tail: Tail
    """What ends each result for them."""
    peer: Peer = IN_PROCESS
    """From where they come."""
    principal: Any = None
    session: Session | None = None
    client_capabilities: Mapping[str, Any] = msgspec.field(default_factory=dict)
    client_info: dict[str, Any] | None = None

    @property
    def owner(self) -> Hashable:
        """To whom what is done for them is counted."""
        return owner_of(self.principal, self.peer) if self.session is None else self.session.owner


class Inbound(msgspec.Struct, frozen=True):
    """A request as a transport hands it over.

    Attributes:
        request: The request.
        routing: What was read of its params.
        revision: The revision that governs it.
        setting: How its client is connected.
        peer: From where it came.
        claim: What a modern request says of its client; None for a legacy one.
        session: Its legacy session, or its shared channel; None for modern and stateless HTTP.
        principal: Whom `authenticate` found.
    """

    request: Request
    routing: Routing
    revision: Revision
    setting: Setting
    peer: Peer
    claim: ModernClaim | None = None
    session: Session | None = None
    principal: object = None

    def table(self) -> InFlight | None:
        """The requests among which its id must be unique."""
        return None if self.session is None else self.session.in_flight

    @property
    def owner(self) -> Hashable:
        """To whom it is counted: whoever opened its session, or else its sender."""
        return owner_of(self.principal, self.peer) if self.session is None else self.session.owner

    @property
    def legacy_session(self) -> Session | None:
        """Its session, if the request is a legacy one."""
        return None if self.claim is not None else self.session

    def caller(self, bus: "Bus") -> Caller:
        """Return who asks."""
        server, revision, principal = bus.server, self.revision, self.principal
        tail, session, claim = server.tails[revision], self.session, self.claim
        if claim is not None:
            capabilities, info = claim.client_capabilities, claim.client_info
            return Caller(
                server, bus.features, revision, tail, self.peer, principal, None, capabilities, info
            )
        if session is not None:
            capabilities, info = session.client_capabilities, session.client_info
            return Caller(
                server, session.features, revision, tail, self.peer, principal, session, capabilities, info
            )
        return Caller(server, bus.features, revision, tail, self.peer, principal)

    def threshold(self, bus: "Bus") -> LogThreshold:
        """Return from which level its client wants log lines."""
        if self.claim is not None:
            return _THRESHOLDS[self.claim.log_level]
        if self.session is not None:
            return self.session.threshold
        return _THRESHOLDS[bus.limits.log_level]
