"""How a client's request enters the bus, over whatever transport it came.

`serve` refuses before anything is allocated, answers at once what needs no waiting, and starts the actors of
what does. The transports differ only in the stream that the reply goes to.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, overload

import msgspec
import trio

from actors import Guest
from mcpbus.admission import InFlight, Overloaded, Slot
from mcpbus.asking.state import Binding
from mcpbus.brief import Brief
from mcpbus.call import Carrier, Handler, Resume
from mcpbus.context import Context
from mcpbus.features.calls import ToolCall
from mcpbus.handshake import Registration
from mcpbus.methods import METHODS, Caller, Prepared, offers
from mcpbus.protocol.errors import ProtocolError, invalid_params, method_not_found
from mcpbus.protocol.jsonrpc import Notification, Request, Response
from mcpbus.protocol.levels import LogLevel
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
from mcpbus.request import Answered, LogThreshold, RequestActor, Ticket
from mcpbus.routing import Line, Setting
from mcpbus.session import CancelRequest, Initialized, Session, Subscribe, Unsubscribe
from mcpbus.stream import Stream
from mcpbus.subscription import SubscriptionActor
from mcpbus.tasks.extension import declares, undeclared

if TYPE_CHECKING:
    from mcpbus.bus import Bus

_EMPTY = b"{}"
LISTEN = "subscriptions/listen"
INITIALIZE = "initialize"
# Those that may be answered with input_required (2026-07-28, Multi Round-Trip Requests, "Supported Requests").
_ROUNDS = frozenset({"tools/call", "prompts/get", "resources/read"})
# For all requests whose client cannot change its mind meanwhile: those without a session.
_THRESHOLDS = {level: LogThreshold(level) for level in (None, *LogLevel)}


class Inbound(msgspec.Struct, frozen=True, gc=False):
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


@overload
def serve(bus: "Bus", inbound: Inbound, open_stream: OpenStream) -> bytes | Stream: ...
@overload
def serve(
    bus: "Bus", inbound: Inbound, open_stream: OpenStream, scope: trio.CancelScope | None
) -> bytes | Stream | Brief: ...
def serve(
    bus: "Bus", inbound: Inbound, open_stream: OpenStream, scope: trio.CancelScope | None = None
) -> bytes | Stream | Brief:
    """Serve a request, `initialize` apart.

    Args:
        bus: The bus.
        inbound: The request.
        open_stream: Opens the stream for its reply, or returns the channel that has it; called only once
            nothing can be refused any more.
        scope: That of whoever asks, if they run the handler where there is one; see `actors.Guest`.

    Returns:
        The encoded result object, where it was there at once; what is to be run, if there was a scope; otherwise the stream
        on which the reply comes.

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
    rounds = inbound.claim is not None and request.method in _ROUNDS
    if rounds and inbound.routing.is_retry:
        return _retry(bus, inbound, caller, prepared, open_stream)
    slot = bus.admission.admit(request.id, inbound.table)
    carrier = Carrier(bus, caller, request, rounds=rounds)
    if isinstance(prepared, ToolCall):
        carrier.task_support = prepared.tool.task
    if scope is None:
        return _start(bus, _ticket(bus, inbound, slot, open_stream(Line.OWN)), carrier, prepared)
    carrier.progress_token = inbound.routing.meta.progress_token
    carrier.log_level = _threshold(bus, inbound)

    def appear(guest: Guest) -> Stream:
        ticket = _ticket(bus, inbound, slot, open_stream(Line.OWN))
        bus.system.spawn(RequestActor, ticket, bus.ledger, carrier, guest)
        return ticket.stream

    return Brief(carrier, prepared, slot, appear, scope)


def _start(bus: "Bus", ticket: Ticket, carrier: Carrier, handler: Handler) -> Stream:
    """Start the actor of an admitted request."""
    bus.system.spawn(RequestActor, ticket, bus.ledger, carrier, (handler, Context(bus, carrier)))
    return ticket.stream


def _retry(
    bus: "Bus", inbound: Inbound, caller: Caller, prepared: Prepared, open_stream: OpenStream
) -> Stream:
    """Serve a request that brings answers, and perhaps the state of an earlier round."""
    request, routing = inbound.request, inbound.routing
    responses = {} if routing.input_responses is msgspec.UNSET else routing.input_responses
    if not isinstance(responses, dict):
        raise invalid_params("expected an object of answers by key - at `params.inputResponses`")
    state = None
    if routing.request_state is not msgspec.UNSET:
        state = bus.parking.sealer.open(routing.request_state, Binding.of(request, inbound.principal))
    slot = bus.admission.admit(request.id, inbound.table)
    parked = None
    if state is not None:
        try:
            parked = bus.parking.claim(state)
            lost = parked is None and not state.again
            if lost and (state.answers is None or not prepared.replayable):
                raise invalid_params("the call that this state belongs to is lost; begin anew")
        except ProtocolError:
            slot.release()
            raise
    ticket = _ticket(bus, inbound, slot, open_stream(Line.OWN))
    if parked is not None:
        carrier = parked.carrier
        carrier.carry(caller, request, rounds=True)
        bus.system.spawn(RequestActor, ticket, bus.ledger, carrier, None)
        carrier.call.tell(Resume(responses))
        return ticket.stream
    carrier = Carrier(bus, caller, request, rounds=True)
    if state is not None:
        answers = state.answers or {}
        carrier.answers = {key: msgspec.json.decode(answer) for key, answer in answers.items()}
        carrier.state = None if state.author is None else msgspec.json.decode(state.author)
    carrier.answers |= responses
    if isinstance(prepared, ToolCall):
        carrier.task_support = prepared.tool.task
    return _start(bus, ticket, carrier, prepared)


def answer(response: Response, session: Session) -> None:
    """Take a client's answer to a question. One that nobody waits for is dropped, as routing note 19 has it."""
    session.touch()
    asker = None if response.id is None else session.questions.get(response.id)
    if asker is not None:
        asker.tell(Answered(response))


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
    ticket = _ticket(bus, inbound, slot, open_stream(Line.OWN))
    if inbound.setting is not Setting.SHARED and inbound.session is not None:
        ticket.session_id = inbound.session.id
    carrier = Carrier(bus, _caller(bus, inbound), inbound.request, rounds=False)
    return _start(bus, ticket, carrier, registration)


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
        return Caller(
            bus.server,
            bus.features,
            inbound.revision,
            inbound.principal,
            None,
            claim.client_capabilities,
            claim.client_info,
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
    return Ticket(
        inbound.request.id,
        inbound.request.method,
        inbound.revision,
        inbound.setting,
        stream,
        slot,
        inbound.routing.meta.progress_token,
        _threshold(bus, inbound),
        bus.limits.abandoned_timeout,
        inbound.legacy_session,
    )


def _threshold(bus: "Bus", inbound: Inbound) -> LogThreshold:
    """Return from which level the client of a request wants log lines."""
    if inbound.claim is not None:
        return _THRESHOLDS[inbound.claim.log_level]
    if inbound.session is not None:
        return inbound.session.threshold
    return _THRESHOLDS[bus.limits.log_level]


def _listen(bus: "Bus", inbound: Inbound, open_stream: OpenStream) -> Stream:
    request = inbound.request
    asked = decode_params(ListenParams, request.params).notifications
    limit = bus.limits.max_listened_resources
    if len(asked.resource_subscriptions) > limit:
        raise invalid_params(
            f"a listen may name at most {limit} resources - at `params.notifications.resourceSubscriptions`"
        )
    if len(asked.task_ids) > limit:
        raise invalid_params(f"a listen may name at most {limit} tasks - at `params.notifications.taskIds`")
    if asked.task_ids and bus.features.offers("tasks"):
        claim = inbound.claim
        if claim is None or not declares(claim.client_capabilities, inbound.revision):
            raise undeclared()
    slot = bus.admission.admit(request.id, inbound.table)
    stream = open_stream(Line.LISTEN)
    ticket = _ticket(bus, inbound, slot, stream)
    granted = grant(bus, asked, inbound.principal)
    bus.system.spawn(SubscriptionActor, ticket, granted, bus)
    return stream


def grant(bus: "Bus", asked: SubscriptionFilter, principal: object) -> SubscriptionFilter:
    """Return what of a filter the server honours: what it offers at all, and tasks of this principal."""
    features = bus.features
    resources = features.offers("resources")
    lists = _lists(
        asked.tools_list_changed and features.offers("tools"),
        asked.prompts_list_changed and features.offers("prompts"),
        asked.resources_list_changed and resources,
    )
    uris = asked.resource_subscriptions if resources else ()
    tasks = tuple(task_id for task_id in dict.fromkeys(asked.task_ids) if bus.tasks.find(task_id, principal))
    if not uris and not tasks:
        return lists
    return msgspec.structs.replace(lists, resource_subscriptions=uris, task_ids=tasks)


@cache
def _lists(tools: bool, prompts: bool, resources: bool) -> SubscriptionFilter:
    """Return the filter that names these lists; most listens name nothing else, and have one of eight in common."""
    return SubscriptionFilter(tools, prompts, resources)


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
