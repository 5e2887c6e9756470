"""What is done about an HTTP request that the `Exchange` has judged. Nothing here waits but its author's code."""

import math
from typing import Any, Literal, TypeAlias

import attrs
import msgspec
from mcpbus_actors import EagerTask

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.hub import Hub
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.request_actor import RequestActor
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.messages import CloseSession, OpenGet
from mcpbus.core.sessions.session import Session
from mcpbus.dispatch import dispatcher
from mcpbus.dispatch.dispatcher import LISTEN
from mcpbus.dispatch.handshake import Registration
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.headers import AcceptHeader
from mcpbus.protocol.http.messages import (
    ACCEPTED,
    NO_CONTENT,
    AcceptNotification,
    Batch,
    DeliverResponse,
    EndSession,
    HttpResponse,
    Initialize,
    OpenStream,
    RequestHead,
    Serve,
)
from mcpbus.protocol.http.sse import HEADERS, encode_event
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import StreamKind
from mcpbus.transports import responses
from mcpbus.transports.batches import begin_batch
from mcpbus.transports.inline_responses import answer_burst
from mcpbus.transports.refusal_log import RefusalLog
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import ResponseSink
from mcpbus.transports.responses import GET_FORMAT, JSON_HEADERS, LISTEN_FORMAT, ResponseFormat

ResponseMode: TypeAlias = Literal["auto", "json", "sse"]
OtherDecision: TypeAlias = (
    HttpResponse | Initialize | AcceptNotification[Session] | DeliverResponse[Session] | Batch[Session]
)
Decision: TypeAlias = Serve[Session] | OtherDecision
"""What is to be done about a POST: most ask for something to be served."""


def check_response(response: object) -> None:
    """Refuse what is no form of answers.

    Raises:
        ValueError: There is no such form.
    """
    if response not in ("auto", "json", "sse"):
        raise ValueError(f"response is {response!r}: it must be 'auto', 'json' or 'sse'")


class RequestHandler:
    """Carries out what was decided about requests to an endpoint.

    Each method returns the whole answer; or it gives the sink the stream on which the answer comes, and returns a handler that
    waits if there is one.

    Args:
        bus: The bus.
        response: The form of answers: chosen late for each ("auto"), always JSON, or always an SSE stream.
        refusals: Is told what is refused.
        stateless: Whether there are no legacy sessions.

    Raises:
        ValueError: There is no such form.
    """

    def __init__(self, bus: Hub, response: ResponseMode, refusals: RefusalLog, *, stateless: bool) -> None:
        check_response(response)
        self._bus = bus
        self._refusals = refusals
        self._stateless = stateless
        preferred = ResponseFormat(json=response != "sse", sse=response != "json")
        narrowed = {
            accepted: preferred.narrow(accepted)
            for accepted in (AcceptHeader(json, sse) for json in (True, False) for sse in (True, False))
        }
        self._forms = {
            accepted: (form, form.transport(stateless=False), form.transport(stateless=True))
            for accepted, form in narrowed.items()
        }

    def carry_out(
        self, decision: Decision, head: RequestHead, principal: Any, peer: Peer, sink: ResponseSink
    ) -> HttpResponse | EagerTask | None:
        """Carry out what was decided about a POST."""
        if not isinstance(decision, Serve):
            return self._carry_out_rest(decision, head, principal, peer, sink)
        form, transport, stateless = self._forms[decision.accepted]
        claim, session = decision.claim, decision.session
        if claim is None and session is None:
            transport = stateless
        request, revision = decision.request, decision.revision
        context = RequestContext(
            request, decision.routing, revision, transport, peer, claim, session, principal, head
        )
        bus, scope, admit = self._bus, sink.scope, dispatcher.admit
        if scope is None and bus.backend.may_wait(request.method, context.routing.name, revision.era):
            admit = dispatcher.serve
        try:
            result = admit(bus, context, bus.open_stream)
        except ProtocolError as error:
            return responses.error_reply(error, request.id, revision)
        if isinstance(result, RequestActor):
            result.response_handler = answering = _Answering(sink, form, context, bus)
            # What an event stream needs, a stream knows.
            answered = result.run(scope, streaming=not form.json)
            gathered = result.inline_notifications
            if gathered is not None and isinstance(answered, bytes | ProtocolError):
                return answer_burst(bus, context, sink, gathered, answered, keeps=answering.stores_first)
            if not isinstance(answered, bytes):
                return _failure(context, answered) if isinstance(answered, ProtocolError) else answered
            result = answered
        elif isinstance(result, MessageStream):
            _open(sink, LISTEN_FORMAT if request.method == LISTEN else form, revision, result)
            return None
        return _reply(context, form, result)

    def _carry_out_rest(
        self, decision: OtherDecision, head: RequestHead, principal: Any, peer: Peer, sink: ResponseSink
    ) -> HttpResponse | None:
        match decision:
            case Batch():
                return self._batch(decision, principal, peer, sink)
            case Initialize():
                return self._initialize(decision, head, principal, peer, sink)
            case AcceptNotification():
                dispatcher.handle_notification(
                    self._bus, decision.notification, decision.session, principal, peer
                )
                return ACCEPTED
            case DeliverResponse():
                dispatcher.deliver_input_response(decision.response, decision.session)
                return decision.answer
        return self._refusals.note(decision, head, peer)

    def _batch(
        self, batch: Batch[Session], principal: Any, peer: Peer, sink: ResponseSink
    ) -> HttpResponse | None:
        form, transport, stateless = self._forms[batch.accepted]
        form = attrs.evolve(form, array=True)
        transport = stateless if batch.session is None else transport
        begun = begin_batch(self._bus, batch, transport, principal, peer)
        if isinstance(begun, HttpResponse):
            return begun
        _open(sink, form, None, begun)
        return None

    def _initialize(
        self, decision: Initialize, head: RequestHead, principal: Any, peer: Peer, sink: ResponseSink
    ) -> HttpResponse | None:
        form, transport, stateless = self._forms[decision.accepted]
        transport = stateless if self._stateless else transport
        context = RequestContext(
            decision.request,
            decision.routing,
            decision.revision,
            transport,
            peer,
            principal=principal,
            head=head,
        )
        bus = self._bus
        if self._stateless:
            result = bus.backend.initialize(decision.revision, None)
            return _reply(context, form, result)
        try:
            session = bus.session_directory.open(transport, principal, peer)
            context = msgspec.structs.replace(context, session=session)
            registration = Registration(bus, session, decision.params, decision.revision)
            registered = dispatcher.register(bus, context, registration, bus.open_stream)
        except ProtocolError as error:
            return responses.error_reply(error, context.request.id, context.revision)
        if isinstance(registered, MessageStream):
            # The session's id goes into the head, which therefore waits for the outcome.
            _open(sink, attrs.evolve(form, patient=True), context.revision, registered)
            return None
        return _reply(context, form, registered, session.id)

    def admit(self, decision: HttpResponse | OpenStream[Session]) -> HttpResponse | OpenStream[Session]:
        """Note that somebody asks for a stream of their session, new or old; refuse it in a drain."""
        if isinstance(decision, OpenStream):
            decision.session.touch()
            if self._bus.admission.closed:
                return responses.overload(ServerOverloaded("The server is shutting down"))
        return decision

    def open(self, decision: OpenStream[Session], principal: Any, sink: ResponseSink) -> None:
        """Open a GET stream."""
        stream = self._bus.open_stream(StreamKind.STANDALONE, decision.session)
        stream.expire_in(self._bus.seconds_left(principal))
        decision.session.address.tell(OpenGet(stream))
        _open(sink, GET_FORMAT, None, stream)

    def end(self, decision: EndSession[Session]) -> HttpResponse:
        """End a session."""
        decision.session.address.tell(CloseSession(None))
        return NO_CONTENT


class _Answering(msgspec.Struct):
    """Has the answer of a request written, in the form that comes of it.

    Attributes:
        sink: Who writes it.
        form: What forms it may take.
        context: The request.
        bus: The bus.
        request: What it waits for then.
    """

    sink: ResponseSink
    form: ResponseFormat
    context: RequestContext
    bus: Hub
    request: RequestActor | None = None

    @property
    def collects_notifications(self) -> bool:
        """See `mcpbus.core.request_actor.ResponseHandler`."""
        return self.form.sse and self.sink.gathers

    @property
    def stores_first(self) -> bool:
        """See `mcpbus.core.request_actor.ResponseHandler`."""
        return self.bus.event_store is not None and self.context.session is not None

    def open(self, stream: MessageStream) -> None:
        """See `mcpbus.core.request_actor.ResponseHandler`."""
        _open(self.sink, self.form, self.context.revision, stream)

    def wait(self, request: RequestActor) -> bool:
        """See `mcpbus.core.request_actor.ResponseHandler`."""
        self.request = request
        return self.sink.on_handler_waiting(self, self.bus.limits.keep_alive if self.form.sse else math.inf)

    def answer(self, result: bytes | ProtocolError) -> None:
        """See `mcpbus.core.request_actor.ResponseHandler`."""
        sink, context = self.sink, self.context
        try:
            if isinstance(result, ProtocolError):
                sink.finish(_failure(context, result))
            else:
                sink.finish(_reply(context, self.form, result))
        except Exception as failure:  # noqa: BLE001 - there is no memory: others that wait are not to blame
            sink.fail(failure)

    def keep_alive(self) -> None:
        """See `mcpbus.transports.response_sinks.KeepAliveHandler`."""
        if self.request is not None:
            self.form = attrs.evolve(self.form, early=True)
            self.request.begin()

    def cancel(self) -> None:
        """See `mcpbus.transports.response_sinks.KeepAliveHandler`."""
        if self.request is not None:
            self.request.client_gone()


def _open(sink: ResponseSink, form: ResponseFormat, revision: Revision | None, stream: MessageStream) -> None:
    sink.open(StreamedResponse(stream, stream.attach(), form, revision))


def _failure(context: RequestContext, error: ProtocolError) -> HttpResponse:
    """The answer with an error that was there at once."""
    reply = responses.error_reply(error, context.request.id, context.revision)
    return HttpResponse(reply.status, reply.headers, reply.body, context)


def _reply(
    context: RequestContext, form: ResponseFormat, result: bytes, session_id: str | None = None
) -> HttpResponse:
    """The answer with a result that was there at once."""
    data = context.revision.encode_reply(context.request.id, result)
    headers = JSON_HEADERS
    if not form.json:
        data, headers = encode_event(data), HEADERS
    if session_id is not None:
        headers = [*headers, *responses.session_header(session_id)]
    return HttpResponse(200, headers, data, context)
