"""How a client's request enters the bus, over whatever transport it came.

`serve` refuses before anything is allocated, answers at once what needs no waiting, and runs the handler of
what does. The transports differ only in the stream that the reply goes to.
"""

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from mcpbus.admission import CountedTo, Overloaded, PastShare
from mcpbus.asking.ask import LONGEST_KEY, MOST_ANSWERS
from mcpbus.asking.parking import Parked
from mcpbus.budget import weigh
from mcpbus.call import Call, Handler, Resume
from mcpbus.dispatch.handshake import Registration
from mcpbus.dispatch.methods import METHODS
from mcpbus.inbound import Caller, Inbound, OpenStream
from mcpbus.protocol.errors import ProtocolError, internal_error, invalid_params, method_not_found
from mcpbus.protocol.jsonrpc import Notification, Response
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.protocol.messages import (
    CancelledParams,
    ListenParams,
    SetLevelParams,
    SubscribeParams,
    SubscriptionFilter,
    decode_params,
)
from mcpbus.protocol.request_state import Binding, RoundState
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import Line, Setting
from mcpbus.protocol.task_extension import declares, undeclared
from mcpbus.request import Request
from mcpbus.session import CancelRequest, Initialized, Session
from mcpbus.signals import Answered
from mcpbus.stream import Stream
from mcpbus.subscription import SubscriptionActor

if TYPE_CHECKING:
    from mcpbus.bus import Bus

_log = logging.getLogger("mcpbus")

_EMPTY = b"{}"
LISTEN = "subscriptions/listen"
INITIALIZE = "initialize"


def serve(bus: "Bus", inbound: Inbound, open_stream: OpenStream) -> bytes | Stream:
    """Serve a request, `initialize` apart; its handler has a task of its own.

    Returns:
        The encoded result object, where it was there at once; otherwise the stream on which the reply comes.

    Raises:
        ProtocolError: What to answer instead; anything else that went wrong has been logged.
    """
    admitted = admit(bus, inbound, open_stream)
    if not isinstance(admitted, Request):
        return admitted
    try:
        return admitted.start()
    except Exception as error:
        admitted.slot.release()
        raise _failed(inbound, error) from error


def admit(bus: "Bus", inbound: Inbound, open_stream: OpenStream) -> bytes | Stream | Request:
    """Admit a request, `initialize` apart, whose handler is run by whoever has it admitted.

    Args:
        bus: The bus.
        inbound: The request.
        open_stream: Opens the stream for its reply, or returns the channel that has it; called only once
            nothing can be refused any more.

    Returns:
        The encoded result object, where it was there at once; what is to be run or started; or the stream on which the reply
        comes, where there is nothing to run.

    Raises:
        ProtocolError: What to answer instead; anything else that went wrong has been logged.
    """
    request, session, slot = inbound.request, inbound.session, None
    try:
        if session is not None:
            session.touch()
        method = METHODS.get(request.method)
        if method is None:
            return _serve_apart(bus, inbound, open_stream)
        large = len(request.params) >= LARGE_BYTES and _fits(bus, inbound)
        caller = inbound.caller(bus)
        method.check(caller)
        params = decode_params(method.params, request.params)
        if method.answer is not None:
            return method.answer(params, caller)
        assert method.prepare is not None  # noqa: S101 - a method has the one or the other
        handler = method.prepare(params, caller)
        rounds = method.rounds and inbound.claim is not None
        if rounds and inbound.routing.is_retry():
            return _retry(bus, inbound, caller, handler, open_stream)
        slot = bus.admission.admit(request.id, inbound.table(), inbound)
        call = Call(bus.system, bus=bus, caller=caller, request=request, handler=handler, rounds=rounds)
        admitted = call.carrier = slot.request = Request(
            bus.system, inbound=inbound, slot=slot, call=call, open_stream=open_stream
        )
        if large:
            _count(admitted)
    except (ProtocolError, KeyboardInterrupt):
        raise
    except BaseException as error:  # of the author's, such as how a principal compares; or there is no memory
        if slot is not None:
            slot.release()
        raise _failed(inbound, error) from error
    return admitted


def _failed(inbound: Inbound, error: BaseException) -> ProtocolError:
    """Log what went wrong before a request had begun, and return what its client is told."""
    _log.error("%s failed", inbound.request.method, exc_info=error)
    return internal_error()


def _fits(bus: "Bus", inbound: Inbound) -> bool:
    """Return whether there may be a request that brings so much; raises what to answer if not."""
    bus.budget.check(weigh(inbound.request.params), inbound.owner)
    return True


def _count(request: Request) -> None:
    """Count what a request brings before it is decoded, by which it grows; raises what to answer if it has to go at once."""
    call = request.call
    call.count(request.give_up)
    if call.gives_up:
        request.slot.release()
        call.let_go()
        raise Overloaded("Too much is kept in memory, and this request would be the largest; try again later")


def _serve_apart(bus: "Bus", inbound: Inbound, open_stream: OpenStream) -> bytes | Stream:
    """Serve what no features stand behind: what concerns a session or a stream."""
    method, session = inbound.request.method, inbound.legacy_session
    if method == LISTEN and inbound.revision.era is Era.MODERN:
        return _listen(bus, inbound, open_stream)
    of_session = _SESSION_METHODS.get(method)
    if of_session is None or session is None:
        raise method_not_found(method)
    return of_session(session, inbound)


def _retry(bus: "Bus", inbound: Inbound, caller: Caller, handler: Handler, open_stream: OpenStream) -> Stream:
    """Serve a request that brings answers, and perhaps the state of an earlier round."""
    request, routing = inbound.request, inbound.routing
    responses = {} if routing.input_responses is msgspec.UNSET else routing.input_responses
    if not isinstance(responses, dict):
        raise invalid_params("expected an object of answers by key - at `params.inputResponses`")
    if len(responses) > MOST_ANSWERS or any(len(key) > LONGEST_KEY for key in responses):
        bound = f"at most {MOST_ANSWERS} answers, by keys of at most {LONGEST_KEY} characters"
        raise invalid_params(f"expected {bound} - at `params.inputResponses`")
    state = None
    if routing.request_state is not msgspec.UNSET:
        state = bus.parking.open(routing.request_state, Binding.of(request, inbound.principal))
    slot = bus.admission.admit(request.id, inbound.table(), inbound)
    parked = None
    try:
        if state is not None:
            parked = _claim(bus, state, handler)
        if parked is not None:
            call = parked.call
            call.carry_on(caller, request)
        else:
            call = Call(bus.system, bus=bus, caller=caller, request=request, handler=handler, rounds=True)
            if state is not None:
                answers = state.answers or {}
                call.answers = {key: msgspec.json.decode(answer) for key, answer in answers.items()}
                call.state = None if state.author is None else msgspec.json.decode(state.author)
            call.answers |= responses
        admitted = call.carrier = slot.request = Request(
            bus.system, inbound=inbound, slot=slot, call=call, open_stream=open_stream
        )
        stream = admitted.start()
    except BaseException:
        slot.release()
        if parked is not None:
            parked.call.cancel()  # its round is used up: nobody can come back for it
        raise
    if parked is not None:
        call.address.tell(Resume(responses))
    return stream


def _claim(bus: "Bus", state: RoundState, handler: Handler) -> Parked | None:
    """Use up a round, and return the call that waits for it; None if it is to be run anew.

    Raises:
        ProtocolError: -32602: the round was used before, or the call is gone and cannot be run anew.
    """
    parked = bus.parking.claim(state)
    lost = parked is None and not state.again
    if lost and (state.answers is None or not handler.replayable):
        raise invalid_params("the call that this state belongs to is lost; begin anew")
    return parked


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
    table = inbound.table() if inbound.setting is Setting.SHARED else None
    try:
        slot = bus.admission.admit(inbound.request.id, table, inbound)
    except ProtocolError:
        registration.abandon()
        raise
    caller = inbound.caller(bus)
    call = Call(
        bus.system, bus=bus, caller=caller, request=inbound.request, handler=registration, rounds=False
    )
    request = call.carrier = slot.request = Request(
        bus.system,
        inbound=inbound,
        slot=slot,
        call=call,
        # Not a stream of its session's: nobody comes back for its answer.
        open_stream=lambda line, _session: open_stream(line, None),
    )
    if inbound.setting is not Setting.SHARED and inbound.session is not None:
        request.session_id = inbound.session.id
    return request.start()


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


def _listen(bus: "Bus", inbound: Inbound, open_stream: OpenStream) -> Stream:
    request = inbound.request
    asked = decode_params(ListenParams, request.params).notifications
    limit = bus.limits.max_listened_resources
    if max(len(asked.resource_subscriptions), len(asked.task_ids)) > limit:
        bus.reached.note("max_listened_resources", inbound.owner, "a listen was refused")
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
    granted = grant(bus, asked, inbound.principal)
    slot = bus.listens.admit(request.id, inbound.table(), CountedTo(inbound.owner))
    stream = open_stream(Line.LISTEN, inbound.session)
    stream.owner = inbound.owner
    bus.system.spawn(SubscriptionActor, inbound, slot, stream, granted, bus)
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
        session.bus.reached.note("max_subscriptions_per_session", session.owner, "a subscription was refused")
        raise PastShare(
            f"Too many subscriptions: at most {limit} in one session; unsubscribe from some first"
        )
    session.subscribe(uri)
    return _EMPTY


def _unsubscribe(session: Session, inbound: Inbound) -> bytes:
    if not session.features.offers("resources"):
        raise method_not_found(inbound.request.method)
    session.unsubscribe(decode_params(SubscribeParams, inbound.request.params).uri)
    return _EMPTY


_SESSION_METHODS: Mapping[str, Callable[[Session, Inbound], bytes]] = {
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
