"""How a client's request enters the bus, over whatever transport it came.

`serve` refuses before anything is allocated, answers at once what needs no waiting, and runs the handler of
what does. The transports differ only in the stream that the reply goes to.

A call that is run anew, where its round was used nowhere.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import msgspec

from mcpbus.core.admission import QuotaExceeded, QuotaKey, ServerOverloaded
from mcpbus.core.backend import Listener
from mcpbus.core.call import CallActor, Handler
from mcpbus.core.client_notification import ClientNotification, NotificationActor
from mcpbus.core.hub import Hub
from mcpbus.core.input_requests import LONGEST_KEY, MOST_ANSWERS
from mcpbus.core.input_responses import InputResponses
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbound import PROGRESS
from mcpbus.core.request_actor import RequestActor
from mcpbus.core.request_context import OpenStream, RequestContext
from mcpbus.core.sessions.messages import CancelRequest, Initialized
from mcpbus.core.sessions.remote import RoundRegistry, SessionStore
from mcpbus.core.sessions.session import Session
from mcpbus.core.signals import InputProgressReceived, InputResponseReceived, Resume
from mcpbus.core.subscription import SubscriptionActor
from mcpbus.core.suspended_calls import SuspendedCall, round_used
from mcpbus.dispatch.handshake import Registration
from mcpbus.features.input_requests.input_required import InputRequired
from mcpbus.protocol.errors import ProtocolError, internal_error, invalid_params, method_not_found
from mcpbus.protocol.jsonrpc import JsonRpcNotification, JsonRpcResponse
from mcpbus.protocol.large import LARGE_BYTES, weigh
from mcpbus.protocol.messages import (
    CancelledParams,
    ListenParams,
    ProgressParams,
    SetLevelParams,
    SubscribeParams,
    decode_params,
)
from mcpbus.protocol.meta import Retry
from mcpbus.protocol.nesting import check_nesting
from mcpbus.protocol.principals import Peer, owner_of
from mcpbus.protocol.request_state import RoundState
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import StreamKind, TransportKind


class SingleUseHandler:
    """A `Handler` in the place of the one that is to run, until it is known that no other process has used the round.

    Args:
        rounds: Knows that.
        state: What was brought back of the round.
        handler: What is to run.
    """

    def __init__(self, rounds: RoundRegistry, state: RoundState, handler: Handler) -> None:
        self.replayable = handler.replayable
        self.rounds = handler.rounds
        self.own_rounds = handler.own_rounds
        self.task_support = handler.task_support
        self._shared = rounds
        self._state = state
        self._handler = handler

    async def run(self, call: CallActor) -> bytes | InputRequired:
        """Use the round up, and run; see `Handler`.

        The round is given back only if nobody asked for it to be used, the hub being overloaded. Where the client leaves meanwhile,
        nobody knows whether it is used up by then, and it is not run a second time.
        """
        try:
            fresh = await self._shared.use(self._state)
        except ServerOverloaded:
            call.bus.parked_calls.give_back(self._state)
            raise
        if not fresh:
            raise round_used()
        call.handler = self._handler
        return await self._handler.run(call)


_log = logging.getLogger("mcpbus")

_OfSession: TypeAlias = Callable[[Hub, Session, RequestContext], bytes]

_EMPTY = b"{}"
LISTEN = "subscriptions/listen"
INITIALIZE = "initialize"


def serve(bus: Hub, context: RequestContext, open_stream: OpenStream) -> bytes | MessageStream:
    """Serve a request, `initialize` apart; its handler has a task of its own.

    Returns:
        The encoded result object, where it was there at once; otherwise the stream on which the reply comes.

    Raises:
        ProtocolError: What to answer instead; anything else that went wrong has been logged.
    """
    admitted = admit(bus, context, open_stream)
    return _start(admitted) if isinstance(admitted, RequestActor) else admitted


def _start(request: RequestActor) -> MessageStream:
    try:
        return request.start()
    except Exception as error:
        raise _failed(request.context, error) from error


def admit(bus: Hub, context: RequestContext, open_stream: OpenStream) -> bytes | MessageStream | RequestActor:
    """Admit a request, `initialize` apart, whose handler is run by whoever has it admitted.

    Args:
        bus: The bus.
        context: The request.
        open_stream: Opens the stream for its reply, or returns the channel that has it; called only once
            nothing can be refused any more.

    Returns:
        The encoded result object, where it was there at once; what is to be run or started; or the stream on which the reply
        comes, where there is nothing to run.

    Raises:
        ProtocolError: What to answer instead; anything else that went wrong has been logged.
    """
    request, session, slot = context.request, context.session, None
    try:
        if session is not None:
            session.touch()
        size = len(request.text)
        large = size >= LARGE_BYTES and not bus.budget.has_room(size) and _fits(bus, context)
        handler = bus.begin(context)
        if handler is None:
            return _serve_apart(bus, context, open_stream)
        if isinstance(handler, bytes):
            return handler
        if (
            (retry := context.routing.retry) is not None
            and context.claim is not None
            and handler.rounds
            and not (handler.own_rounds and bus.parked_calls.sealer.call_of(retry.request_state) is None)
        ):
            return _retry(bus, context, retry, handler, open_stream)
        slot = bus.admission.admit(request.id, None if session is None else session.in_flight, context)
        call = CallActor(bus.system, bus=bus, context=context, handler=handler)
        admitted = RequestActor(bus.system, context=context, slot=slot, call=call, open_stream=open_stream)
        if large:
            _count(admitted)
    except (ProtocolError, KeyboardInterrupt) as error:
        bus.note_refusal(context, error)
        raise
    except BaseException as error:  # of the author's, such as how a principal compares; or there is no memory
        if slot is not None:
            slot.release()
        raise _failed(context, error) from error
    return admitted


def _failed(context: RequestContext, error: BaseException) -> ProtocolError:
    """Log what went wrong before a request had begun, and return what its client is told."""
    _log.error("%s failed", context.request.method, exc_info=error)
    return internal_error()


def _fits(bus: Hub, context: RequestContext) -> bool:
    """Return whether there may be a request that brings so much; raises what to answer if not."""
    bus.budget.check(weigh(context.request.text), context.owner)
    return True


def _count(request: RequestActor) -> None:
    """Count what a request brings before it is decoded, by which it grows; raises what to answer if it has to go at once."""
    call = request.call
    call.count()
    if call.evicted:
        request.slot.release()
        call.let_go()
        raise ServerOverloaded(
            "Too much is kept in memory, and this request would be the largest; try again later"
        )


def _serve_apart(bus: Hub, context: RequestContext, open_stream: OpenStream) -> bytes | MessageStream:
    """Serve what no features stand behind: what concerns a session or a stream."""
    method, session = context.request.method, context.legacy_session
    if method == LISTEN and context.revision.era is Era.MODERN:
        return _listen(bus, context, open_stream)
    of_session = SESSION_METHODS.get(method)
    if of_session is None or session is None:
        raise method_not_found(method)
    records = bus.session_directory.records_of(session)
    heard = of_session is _subscribe and bus.backend.has_upstream_subscriptions
    if records is None and not heard:
        return of_session(bus, session, context)
    slot = bus.admission.admit(context.request.id, context.table(), context)
    call = CallActor(bus.system, bus=bus, context=context, handler=_Changing(bus, records, of_session))
    return _start(RequestActor(bus.system, context=context, slot=slot, call=call, open_stream=open_stream))


class _Changing:
    """Changes what is known of a session, and answers once that has its effect, and is kept for others to go on with it; a `Handler`."""

    replayable = False
    rounds = False
    own_rounds = False
    task_support = None

    def __init__(self, bus: Hub, records: SessionStore | None, change: _OfSession) -> None:
        self._bus = bus
        self._records = records
        self._change = change

    async def run(self, call: CallActor) -> bytes:
        """Make the change."""
        session = call.context.legacy_session
        assert session is not None  # noqa: S101 - it is of a session
        result = self._change(self._bus, session, call.context)
        if self._change is _subscribe and self._bus.backend.has_upstream_subscriptions:
            await self._bus.backend.wait_subscribed([call.context.routing.uri or ""], session.id)
        if self._records is not None:
            await self._records.keep(session)
        return result


def _retry(
    bus: Hub, context: RequestContext, retry: Retry, handler: Handler, open_stream: OpenStream
) -> MessageStream:
    """Serve a request that brings answers, and perhaps the state of an earlier round."""
    request = context.request
    responses = {} if retry.raw_responses is msgspec.UNSET else retry.input_responses
    if not isinstance(responses, dict):
        raise invalid_params("expected an object of answers by key - at `params.inputResponses`")
    if len(responses) > MOST_ANSWERS or any(len(key) > LONGEST_KEY for key in responses):
        bound = f"at most {MOST_ANSWERS} answers, by keys of at most {LONGEST_KEY} characters"
        raise invalid_params(f"expected {bound} - at `params.inputResponses`")
    state = None
    if retry.raw_state is not msgspec.UNSET:
        state = bus.parked_calls.open(retry.request_state, context.binding())
    slot = bus.admission.admit(request.id, context.table(), context)
    parked = None
    try:
        if state is not None:
            parked = _claim(bus, state, handler)
        if parked is not None:
            call = parked.call
            call.continue_in(context)
        else:
            if state is not None and bus.rounds is not None:
                handler = SingleUseHandler(bus.rounds, state, handler)
            call = CallActor(bus.system, bus=bus, context=context, handler=handler)
            call.answers = InputResponses.brought(state, responses)
        stream = RequestActor(
            bus.system, context=context, slot=slot, call=call, open_stream=open_stream
        ).start()
    except BaseException:
        slot.release()
        if parked is not None:
            parked.call.cancel()  # its round is used up: nobody can come back for it
        raise
    if parked is not None:
        call.address.tell(Resume(responses))
    return stream


def _claim(bus: Hub, state: RoundState, handler: Handler) -> SuspendedCall[CallActor] | None:
    """Use up a round, and return the call that waits for it; None if it is to be run anew.

    Raises:
        ProtocolError: -32602: the round was used before, or the call is gone and cannot be run anew.
    """
    parked = bus.parked_calls.claim(state)
    if parked is not None and bus.rounds is not None:
        bus.rounds.note(state)
    lost = parked is None and not state.again
    if lost and (state.answers is None or not handler.replayable):
        raise invalid_params("the call that this state belongs to is lost; begin anew")
    return parked


def deliver_input_response(response: JsonRpcResponse, session: Session) -> None:
    """Take a client's answer to a question. One that nobody waits for is dropped, as routing note 19 has it."""
    session.touch()
    asker = None if response.id is None else session.questions.get(response.id)
    if asker is not None:
        asker.tell(InputResponseReceived(response))


def register(
    bus: Hub, context: RequestContext, registration: Registration, open_stream: OpenStream
) -> bytes | MessageStream:
    """Serve `initialize` in a session that was opened for it; as `serve` in all else."""
    if not bus.backend.has_session_hooks and not registration.is_kept:
        return registration.complete()
    # Over HTTP the session's own table is no place for it: its id is in nobody's way yet, and what ends the
    # session must not silence the answer that says so.
    shared = context.transport is TransportKind.DUPLEX
    try:
        slot = bus.admission.admit(context.request.id, context.table() if shared else None, context)
        request = RequestActor(
            bus.system,
            context=context,
            slot=slot,
            call=CallActor(bus.system, bus=bus, context=context, handler=registration),
            # Not a stream of its session's: nobody comes back for its answer.
            open_stream=lambda kind, _session: open_stream(kind, None),
        )
        if not shared and context.session is not None:
            request.session_id = context.session.id
        return _start(request)
    except BaseException:
        registration.abandon()
        raise


def handle_notification(
    bus: Hub, notification: JsonRpcNotification, session: Session | None, principal: Any, peer: Peer
) -> None:
    """Take note of a client's notification. One that is unknown or malformed is ignored, as JSON-RPC has it.

    Args:
        bus: The bus.
        notification: The notification.
        session: The legacy session, or the channel, in which it came; None for modern and stateless HTTP.
        principal: Whom `authenticate` found.
        peer: From where it came.
    """
    if session is not None:
        session.touch()
    try:
        if notification.method == "notifications/cancelled":
            if session is not None:
                params = decode_params(CancelledParams, notification.params)
                session.address.tell(CancelRequest(params.request_id))
            return
        if notification.method == "notifications/initialized" and session is not None:
            session.address.tell(Initialized())
        if not (notification.method == PROGRESS and session is not None and _report(session, notification)):
            notification_hook = bus.backend.notification_hook(notification.method)
            if notification_hook is not None:
                _tell(bus, notification_hook, notification, session, principal, peer)
    except ProtocolError:
        return


def _report(session: Session, notification: JsonRpcNotification) -> bool:
    """Tell whoever asked a client something how far that is, and return whether somebody did."""
    said = decode_params(ProgressParams, notification.params)
    asker = session.questions.get(said.progress_token)
    if asker is None:
        return False
    asker.tell(InputProgressReceived(said))
    return True


def _tell(  # noqa: PLR0917 - called in one place
    bus: Hub,
    listener: Listener,
    notification: JsonRpcNotification,
    session: Session | None,
    principal: Any,
    peer: Peer,
) -> None:
    """Have a function run for a client's notification, if there is room for it."""
    owner = owner_of(principal, peer) if session is None else session.owner
    if len(notification.params) >= LARGE_BYTES:
        bus.budget.check(weigh(notification.params), owner)
    check_nesting(notification.params)
    params = decode_params(dict, notification.params)
    slot = bus.admission.admit(object(), None if session is None else session.in_flight, QuotaKey(owner))
    known = None if session is None or session.revision is None else session
    told = ClientNotification(notification.method, params, known, principal, bus.state)
    try:
        bus.system.spawn(NotificationActor, slot, partial(listener, told))
    except Exception:  # noqa: BLE001 - it is logged: nobody waits for an answer
        slot.release()
        _log.exception("%s was not given to anybody", notification.method)


def _listen(bus: Hub, context: RequestContext, open_stream: OpenStream) -> MessageStream:
    request = context.request
    asked = decode_params(ListenParams, request.params).notifications
    limit = bus.limits.max_listened_resources
    if max(len(asked.resource_subscriptions), len(asked.task_ids)) > limit:
        bus.limit_monitor.note("max_listened_resources", context.owner, "a listen was refused")
    if len(asked.resource_subscriptions) > limit:
        raise invalid_params(
            f"a listen may name at most {limit} resources - at `params.notifications.resourceSubscriptions`"
        )
    if len(asked.task_ids) > limit:
        raise invalid_params(f"a listen may name at most {limit} tasks - at `params.notifications.taskIds`")
    granted = bus.backend.grant(asked, context)
    if granted.task_ids:
        own = tuple(id_ for id_ in dict.fromkeys(granted.task_ids) if bus.tasks.find(id_, context.principal))
        granted = msgspec.structs.replace(granted, task_ids=own)
    slot = bus.listens.admit(request.id, context.table(), QuotaKey(context.owner))
    stream = open_stream(StreamKind.LISTEN, context.session)
    stream.owner = context.owner
    bus.system.spawn(SubscriptionActor, context, slot, stream, granted, bus)
    return stream


def _set_level(_bus: Hub, session: Session, context: RequestContext) -> bytes:
    session.threshold.level = decode_params(SetLevelParams, context.request.params).level
    session.threshold.chosen = True
    return _EMPTY


def _subscribe(bus: Hub, session: Session, context: RequestContext) -> bytes:
    if not bus.backend.may_subscribe(session):
        raise method_not_found(context.request.method)
    uri = decode_params(SubscribeParams, context.request.params).uri
    limit = bus.limits.max_subscriptions_per_session
    if uri not in session.subscriptions and len(session.subscriptions) >= limit:
        bus.limit_monitor.note("max_subscriptions_per_session", session.owner, "a subscription was refused")
        raise QuotaExceeded(
            f"Too many subscriptions: at most {limit} in one session; unsubscribe from some first"
        )
    session.subscribe(uri)
    return _EMPTY


def _unsubscribe(bus: Hub, session: Session, context: RequestContext) -> bytes:
    if not bus.backend.may_subscribe(session):
        raise method_not_found(context.request.method)
    session.unsubscribe(decode_params(SubscribeParams, context.request.params).uri)
    return _EMPTY


SESSION_METHODS: Mapping[str, _OfSession] = {
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
