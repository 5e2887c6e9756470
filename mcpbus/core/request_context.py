"""A client's request with all that is known of it: how it came, who sent it, and under which rules."""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mcpbus.core.admission import InFlight
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.receipt import Fate
from mcpbus.core.sessions.session import LogThreshold, Session
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.http.headers import NO_HEADERS, Headers
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.messages import decode_params
from mcpbus.protocol.meta import ModernClaim, Routing
from mcpbus.protocol.principals import Peer, digest_of, owner_of
from mcpbus.protocol.request_state import Binding
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import StreamKind, TransportKind

if TYPE_CHECKING:  # a server on stdio starts sooner without it
    from mcpbus.protocol.http.messages import RequestHead


class Life(msgspec.Struct, eq=False):
    """The record that a watch has of one request. Once the request has ended, it holds texts and numbers alone.

    Attributes:
        number: Counts the requests of the bus.
        began: When it arrived, by `time.perf_counter`.
        context: The request, from the start of its handler to its end.
        label: Its method and the name of its tool or prompt, once it has ended.
        seconds: How long it took; None until it has ended.
        outcome: ``ok``, ``tool_error``, ``timeout``, ``error``, ``refused``, ``cancelled``, ``suspended`` or ``task``, once it has ended.
        error: The class of the exception that its tool raised, the JSON-RPC code of the error that it was answered with, or the HTTP status
            with which it was refused.
        said: How many messages its handler has sent, without the reply.
        reply: The fate of its reply.
        first: The request that began its call, if this is a retry that brings answers to a suspended call.
        current: The retry that carries its call now.
        facts: The texts about it that a watch keeps after its end.
    """

    number: int
    began: float
    context: "RequestContext | None" = None
    label: tuple[str, str | None] | None = None
    seconds: float | None = None
    outcome: str | None = None
    error: str | None = None
    said: int = 0
    reply: Fate | None = None
    first: "Life | None" = None
    current: "Life | None" = None
    facts: Any = None

    @property
    def method(self) -> str:
        """The method of the request."""
        return self._label()[0]

    @property
    def name(self) -> str | None:
        """The name of the tool or prompt; None for another method."""
        return self._label()[1]

    def _label(self) -> tuple[str, str | None]:
        if self.label is not None:
            return self.label
        context = self.context
        return ("", None) if context is None else (context.request.method, context.routing.name)

    def carry_on(self, context: "RequestContext", earlier: "Life | None") -> None:
        """Take note that this request resumes the call of an earlier one."""
        self.context = context
        if earlier is not None:
            self.first = earlier.first or earlier
            self.first.current = self


# For all requests whose client cannot change its mind meanwhile: those without a session.
_THRESHOLDS = {level: LogThreshold(level) for level in (None, *LogLevel)}


class _WithMeta(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(default_factory=dict, name="_meta")


OpenStream = Callable[[StreamKind, Session | None], MessageStream]
"""Opens a stream for what is said to a request of this session, or returns the channel that carries it."""


# It is not kept from the garbage collector: a principal is the author's own, and may know the contexts of its calls.
class RequestContext(msgspec.Struct, frozen=True):
    """A request as its transport hands it over.

    Attributes:
        request: The request.
        routing: What was read of its params.
        revision: The revision that governs it.
        transport: How its client is connected.
        peer: From where it came.
        claim: What a modern request says of its client; None for a legacy one.
        session: Its legacy session, or its shared channel; None for modern and stateless HTTP.
        principal: Whom `authenticate` found.
        head: The HTTP request that carried it alone; None for other transports, and in a batch.
        life: The record of a watch; None without one.
    """

    request: JsonRpcRequest
    routing: Routing
    revision: Revision
    transport: TransportKind
    peer: Peer
    claim: ModernClaim | None = None
    session: Session | None = None
    principal: Any = None
    head: "RequestHead | None" = None
    life: "Life | None" = None

    def note_failure(self, outcome: str, error: str) -> None:
        """Note for the watch, if there is one, how the request fails.

        Args:
            outcome: The `Life.outcome` of the request.
            error: The `Life.error`.
        """
        if self.life is not None and self.life.seconds is None:
            self.life.outcome, self.life.error = outcome, error

    @property
    def headers(self) -> Headers:
        """The header fields of its HTTP request; none where it has no `head`."""
        return NO_HEADERS if self.head is None else self.head.headers

    def table(self) -> InFlight | None:
        """The requests among which its id must be unique."""
        return None if self.session is None else self.session.in_flight

    @property
    def owner(self) -> Hashable:
        """To whom it is counted, with all that is done for it: whoever opened its session, or else its sender."""
        return owner_of(self.principal, self.peer) if self.session is None else self.session.owner

    @property
    def state_key(self) -> Hashable:
        """The key of the state that an upstream server keeps for its client, if it has no session: of its principal, or else its address."""
        # The owner's quota may be one that several principals share.
        return self.owner if self.principal is None else digest_of(self.principal)

    @property
    def legacy_session(self) -> Session | None:
        """Its session, if the request is a legacy one."""
        return None if self.claim is not None else self.session

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """What its client declared, as it sent it; empty in stateless serving, which keeps nothing of a handshake."""
        said = self.session if self.claim is None else self.claim
        return {} if said is None else said.client_capabilities

    @property
    def client_info(self) -> Mapping[str, Any]:
        """The client's name and version, as it sent them; empty if it sent none."""
        said = self.session if self.claim is None else self.claim
        return {} if said is None else said.client_info or {}

    def meta(self) -> dict[str, Any]:
        """Decode its ``_meta``."""
        return decode_params(_WithMeta, self.request.params).meta

    def binding(self) -> Binding:
        """Make what a state for this request is bound to."""
        return Binding.of(self.request, self.principal)

    @property
    def chosen_log_level(self) -> LogLevel | None:
        """The level of log lines that its client has chosen; None if it has chosen none."""
        if self.claim is not None:
            return self.claim.log_level
        return (
            self.session.threshold.level
            if self.session is not None and self.session.threshold.chosen
            else None
        )

    def threshold(self, otherwise: LogLevel | None) -> LogThreshold:
        """Return from which level its client wants log lines; that of one who has no way to say so is given."""
        if self.claim is not None:
            return _THRESHOLDS[self.claim.log_level]
        if self.session is not None:
            return self.session.threshold
        return _THRESHOLDS[otherwise]
