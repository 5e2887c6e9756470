"""Under which rules a request on a shared channel is served: those of the connection's session, or what it claims itself."""

import math
from collections.abc import Callable, Iterator, Sequence

import trio

from mcpbus.core.hub import Hub
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.request_actor import RequestActor as Admitted
from mcpbus.core.request_context import OpenStream, RequestContext
from mcpbus.core.sessions.session import Session, SessionStage
from mcpbus.core.signals import ExpireIn
from mcpbus.dispatch import dispatcher
from mcpbus.dispatch.dispatcher import INITIALIZE, LISTEN
from mcpbus.dispatch.handshake import Registration
from mcpbus.protocol.errors import ProtocolError, insufficient_scope, invalid_request, quoted
from mcpbus.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    Undecodable,
    decode,
    decode_batch,
)
from mcpbus.protocol.messages import decode_initialize
from mcpbus.protocol.meta import Routing, read_routing
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.revisions import ASSUMED, MODERN_VERSIONS, Revision, claimed, negotiate
from mcpbus.protocol.routes import StreamKind, TransportKind
from mcpbus.transports.needed_scopes import Asked, lacking

# Requests that only a modern client makes: without its claim they are told what is missing, not to initialize.
_MODERN_METHODS = frozenset({"server/discover", LISTEN})
_UNREADY = (SessionStage.CONNECTED, SessionStage.REGISTERING)
# Before Python 3.12 each look-up by a class's name is a search.
_DUPLEX = TransportKind.DUPLEX

Serve = Callable[[Hub, RequestContext, OpenStream], bytes | MessageStream | Admitted]
"""`dispatcher.serve`, or `dispatcher.admit`."""


class DuplexRequests:
    """What the client of one connection asks for.

    Args:
        bus: The bus.
        session: The session that the connection is.
        stream: The connection's stream.
        principal: Who the client is, if that is known.
        peer: From where it came.
    """

    def __init__(
        self, bus: Hub, session: Session, stream: MessageStream, principal: object, peer: Peer
    ) -> None:
        self._bus = bus
        self._session = session
        self._stream = stream
        self._principal = principal
        self._peer = peer
        self._used = False
        self._expires = -math.inf
        self._prolong(principal)

    @property
    def has_batches(self) -> bool:
        """Whether the client may send arrays of messages."""
        return self._session.revision is not None and self._session.revision.batches

    def renew(self, principal: object) -> None:
        """Note whose the next message is, if that brings a token of its own."""
        if principal is not None and principal is not self._principal:
            self._principal = principal
            self._prolong(principal)

    def _prolong(self, principal: object) -> None:
        """Let the connection last as long as the token that its client has brought, and no shorter than with an earlier one."""
        left = self._bus.seconds_left(principal)
        expires = trio.current_time() + left
        if left < math.inf and expires > self._expires:
            self._expires = expires
            self._session.address.tell(ExpireIn(left))

    def asked(self, data: bytes) -> Iterator[Asked]:
        """Return the requests in a message of the client that is not taken yet, with the session of a legacy one."""
        try:
            members: Sequence[object] = [decode(data)]
        except Undecodable as fault:
            if not fault.array or not self.has_batches:
                return
            try:
                members = decode_batch(data)
            except Undecodable:
                return
        for member in members:
            if isinstance(member, JsonRpcRequest):
                try:
                    routing = read_routing(member.params)
                except ProtocolError:
                    continue
                modern = routing.meta.claims_modern
                yield member, routing, None if modern else self._session

    def note(self, message: JsonRpcNotification | JsonRpcResponse) -> None:
        """Take what is owed no answer."""
        if isinstance(message, JsonRpcNotification):
            dispatcher.handle_notification(
                self._bus, message, self._session, self._session.principal, self._peer
            )
        else:
            dispatcher.deliver_input_response(message, self._session)

    def judge(
        self, request: JsonRpcRequest, serve: Serve = dispatcher.serve, *, alone: bool = True
    ) -> tuple[Revision, bytes | ProtocolError | MessageStream | Admitted]:
        """Judge a request, and begin to serve it.

        Args:
            request: The request.
            serve: `dispatcher.serve`, or `dispatcher.admit` if whoever calls runs its handler.
            alone: Whether it came by itself, not in a batch.

        Returns:
            The revision that governs it; and what that returns, or the error to answer with.
        """
        revision = self._session.revision or ASSUMED
        try:
            routing = read_routing(request.params)
            modern_claim = routing.meta.claims_modern or request.method in _MODERN_METHODS
            if not alone and (modern_claim or request.method == INITIALIZE):
                raise invalid_request(f"{quoted(request.method)} is not served in a batch; send it by itself")
            if modern_claim:
                claim = routing.meta.claim()
                revision = claimed(claim.protocol_version)
                session, principal = self._session, self._principal
                if not self._used:
                    self._used = True
                    self._bus.session_directory.shares.establish(session)
                self._check_scopes(request, routing, None)
                context = RequestContext(
                    request, routing, revision, _DUPLEX, self._peer, claim, session, principal
                )
                return revision, serve(self._bus, context, self._open)
            if request.method == INITIALIZE:
                return revision, self._initialize(request, routing)
            return revision, self._legacy(request, routing, revision, serve)
        except ProtocolError as error:
            return revision, error

    def _legacy(
        self, request: JsonRpcRequest, routing: Routing, revision: Revision, serve: Serve
    ) -> bytes | MessageStream | Admitted:
        if self._session.stage in _UNREADY and request.method != "ping":
            raise invalid_request(
                f"{quoted(request.method)} came before initialize was answered; begin with initialize, "
                f"or send what {MODERN_VERSIONS[-1]} wants in `params._meta`"
            )
        self._check_scopes(request, routing, self._session)
        principal = self._principal
        context = RequestContext(
            request, routing, revision, _DUPLEX, self._peer, None, self._session, principal
        )
        return serve(self._bus, context, self._open)

    def _initialize(self, request: JsonRpcRequest, routing: Routing) -> bytes | MessageStream:
        if self._session.stage is not SessionStage.CONNECTED:
            raise invalid_request("this connection has been initialized; a session is initialized once")
        params = decode_initialize(request.params)
        revision = negotiate(params.protocol_version)
        principal = self._principal
        context = RequestContext(
            request, routing, revision, _DUPLEX, self._peer, None, self._session, principal
        )
        registration = Registration(self._bus, self._session, params, revision)
        return dispatcher.register(self._bus, context, registration, self._open)

    def _check_scopes(self, request: JsonRpcRequest, routing: Routing, session: Session | None) -> None:
        """Refuse what the client's token does not allow; one in the same process that has none may do everything.

        Raises:
            ProtocolError: -32600: the token has to allow more; `data.requiredScopes` says what.
        """
        if self._principal is None:
            return
        needed = lacking(self._bus.backend, self._principal, [(request, routing, session)])
        if needed:
            raise insufficient_scope(needed)

    def _open(self, _kind: StreamKind, _session: Session | None) -> MessageStream:
        return self._stream
