"""How a client's request enters the bus, over whatever transport it came.

`serve` refuses before anything is allocated, answers at once what needs no waiting, and starts the actors of
what does. The transports differ only in the stream that the reply goes to.
"""

import contextvars
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from mcpbus.admission import InFlight, Overloaded, Slot
from mcpbus.call import Carrier
from mcpbus.context import Context
from mcpbus.handshake import Registration
from mcpbus.methods import METHODS, Caller, Prepared, offers
from mcpbus.protocol.errors import ProtocolError, invalid_params, method_not_found
from mcpbus.protocol.jsonrpc import Notification, Request
from mcpbus.protocol.messages import (
    CancelledParams,
    ListenParams,
    SetLevelParams,
    SubscribeParams,
    SubscriptionFilter,
    decode_params,
)
from mcpbus.protocol.meta import ModernClaim, Routing
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.request import LogThreshold, RequestActor, Ticket
from mcpbus.routing import Line, Setting
from mcpbus.session import CancelRequest, Initialized, Session, Subscribe, Unsubscribe
from mcpbus.stream import Stream
from mcpbus.subscription import SubscriptionActor

if TYPE_CHECKING:
    from mcpbus.bus import Bus

_EMPTY = b"{}"
LISTEN = "subscriptions/listen"
INITIALIZE = "initialize"


@attrs.frozen
class Inbound:
    """A request as a transport hands it over.

    Attributes:
        request: The request.
        routing: What was read of its params.
        revision: The revision that governs it.
        setting: How its client is connected.
        claim: What a modern request says of its client; None for a legacy one.
        session: Its legacy session, or its shared channel; None for modern and stateless HTTP.
        principal: Whom `authenticate` found.
    """

    request: Request
    routing: Routing
    revision: Revision
    setting: Setting
    claim: ModernClaim | None = None
    session: Session | None = None
    principal: object = None

    @property
    def table(self) -> InFlight | None:
        """The requests among which its id must be unique."""
        return None if self.session is None else self.session.in_flight

    @property
    def legacy_session(self) -> Session | None:
        """Its session, if the request is a legacy one."""
        return None if self.claim is not None else self.session


OpenStream = Callable[[Line], Stream]


def serve(bus: "Bus", inbound: Inbound, open_stream: OpenStream) -> bytes | Stream:
    """Serve a request, `initialize` apart.

    Args:
        bus: The bus.
        inbound: The request.
        open_stream: Opens the stream for its reply, or returns the channel that has it; called only once
            nothing can be refused any more.

    Returns:
        The encoded result object, where it was there at once; otherwise the stream on which the reply comes.

    Raises:
        ProtocolError: What to answer instead.
    """
    request, era = inbound.request, inbound.revision.era
    if inbound.session is not None:
        inbound.session.touch()
    special = _SESSION_METHODS.get(request.method)
    if special is not None and inbound.legacy_session is not None:
        return special(inbound.legacy_session, inbound)
    if request.method == LISTEN and era is Era.MODERN:
        return _listen(bus, inbound, open_stream)
    if not offers(request.method, era):
        raise method_not_found(request.method)
    method, caller = METHODS[request.method], _caller(bus, inbound)
    params = decode_params(method.params, request.params)
    if method.answer is not None:
        return method.answer(params, caller)
    assert method.prepare is not None  # noqa: S101 - a method has the one or the other
    prepared = method.prepare(params, caller)
    slot = bus.admission.admit(request.id, inbound.table)
    stream = open_stream(Line.OWN)
    start(bus, _ticket(bus, inbound, slot, stream), caller, prepared, partial(_meta, request))
    return stream


def start(
    bus: "Bus",
    ticket: Ticket,
    caller: Caller,
    prepared: Prepared | Registration,
    meta: Callable[[], dict[str, Any]],
) -> None:
    """Start the actors of an admitted request."""
    carrier = Carrier()
    context = Context(bus, caller, carrier, ticket.id, meta)
    bus.system.spawn(RequestActor, ticket, bus.ledger, carrier, partial(prepared.run, context))


def register(
    bus: "Bus", inbound: Inbound, registration: Registration, open_stream: OpenStream
) -> bytes | Stream:
    """Serve `initialize` in a session that was opened for it; as `serve` in all else."""
    if not bus.server.session_hooks:
        return registration.complete()
    # Over HTTP the session's own table is no place for it: its id is in nobody's way yet, and what ends the
    # session must not silence the answer that says so.
    table = inbound.table if inbound.setting is Setting.SHARED else None
    try:
        slot = bus.admission.admit(inbound.request.id, table)
    except ProtocolError:
        registration.abandon()
        raise
    stream = open_stream(Line.OWN)
    ticket = _ticket(bus, inbound, slot, stream)
    if inbound.setting is not Setting.SHARED and inbound.session is not None:
        ticket.session_id = inbound.session.id
    start(bus, ticket, _caller(bus, inbound), registration, partial(_meta, inbound.request))
    return stream


def notify(notification: Notification, session: Session | None) -> None:
    """Take note of a client's notification. One that is unknown or malformed is ignored, as JSON-RPC has it."""
    if session is None:
        return
    session.touch()
    if notification.method == "notifications/initialized":
        session.address.tell(Initialized())
    elif notification.method == "notifications/cancelled":
        try:
            params = decode_params(CancelledParams, notification.params)
        except ProtocolError:
            return
        session.address.tell(CancelRequest(params.request_id))


def _caller(bus: "Bus", inbound: Inbound) -> Caller:
    session, claim = inbound.legacy_session, inbound.claim
    if claim is not None:
        info = None if claim.client_info is None else msgspec.to_builtins(claim.client_info)
        return Caller(
            bus.server,
            bus.features,
            inbound.revision,
            inbound.principal,
            None,
            claim.client_capabilities,
            info,
        )
    if session is not None:
        return Caller(
            bus.server,
            session.features,
            inbound.revision,
            inbound.principal,
            session,
            session.client_capabilities,
            session.client_info,
        )
    return Caller(bus.server, bus.features, inbound.revision, inbound.principal, None, {}, None)


def _ticket(bus: "Bus", inbound: Inbound, slot: Slot, stream: Stream) -> Ticket:
    claim, session = inbound.claim, inbound.legacy_session
    if claim is not None:
        threshold = LogThreshold(claim.log_level)
    elif session is not None:
        threshold = session.threshold
    else:
        threshold = LogThreshold(bus.limits.log_level)
    return Ticket(
        inbound.request.id,
        inbound.request.method,
        inbound.revision,
        inbound.setting,
        stream,
        slot,
        inbound.routing.meta.progress_token,
        threshold,
        bus.limits.abandoned_timeout,
        contextvars.copy_context(),
    )


class _WithMeta(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(default_factory=dict, name="_meta")


def _meta(request: Request) -> dict[str, Any]:
    return decode_params(_WithMeta, request.params).meta


def _listen(bus: "Bus", inbound: Inbound, open_stream: OpenStream) -> Stream:
    request = inbound.request
    asked = decode_params(ListenParams, request.params).notifications
    limit = bus.limits.max_listened_resources
    if len(asked.resource_subscriptions) > limit:
        raise invalid_params(
            f"a listen may name at most {limit} resources - at `params.notifications.resourceSubscriptions`"
        )
    slot = bus.admission.admit(request.id, inbound.table)
    stream = open_stream(Line.LISTEN)
    ticket = _ticket(bus, inbound, slot, stream)
    granted = grant(bus, asked)
    bus.system.spawn(SubscriptionActor, ticket, granted, bus)
    return stream


def grant(bus: "Bus", asked: SubscriptionFilter) -> SubscriptionFilter:
    """Return what of a filter the server honours: what it offers at all."""
    features = bus.features
    resources = features.offers("resources")
    return SubscriptionFilter(
        tools_list_changed=asked.tools_list_changed and features.offers("tools"),
        prompts_list_changed=asked.prompts_list_changed and features.offers("prompts"),
        resources_list_changed=asked.resources_list_changed and resources,
        resource_subscriptions=asked.resource_subscriptions if resources else (),
    )


def _set_level(session: Session, inbound: Inbound) -> bytes:
    session.threshold.level = decode_params(SetLevelParams, inbound.request.params).level
    return _EMPTY


def _subscribe(session: Session, inbound: Inbound) -> bytes:
    if not session.features.offers("resources"):
        raise method_not_found(inbound.request.method)
    uri = decode_params(SubscribeParams, inbound.request.params).uri
    limit = session.bus.limits.max_subscriptions_per_session
    if uri not in session.subscriptions and len(session.subscriptions) >= limit:
        raise Overloaded(
            f"Too many subscriptions: at most {limit} in one session; unsubscribe from some first"
        )
    session.address.tell(Subscribe(uri))
    return _EMPTY


def _unsubscribe(session: Session, inbound: Inbound) -> bytes:
    if not session.features.offers("resources"):
        raise method_not_found(inbound.request.method)
    session.address.tell(Unsubscribe(decode_params(SubscribeParams, inbound.request.params).uri))
    return _EMPTY


_SESSION_METHODS: Mapping[str, Callable[[Session, Inbound], bytes]] = {
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
