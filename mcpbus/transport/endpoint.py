"""Streamable HTTP in both eras: carries out what the `exchange` judges, for any shell that speaks HTTP.

A shell hands in one `HttpRequest` at a time. While a handler runs, its client's disconnect is watched for; the
form of the answer is chosen when its first bytes are due.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs
import msgspec

from mcpbus import dispatch
from mcpbus.admission import Overloaded
from mcpbus.authentication import Unauthorized
from mcpbus.brief import Brief
from mcpbus.dispatch import LISTEN, Inbound
from mcpbus.fate import DELIVERED, Reason
from mcpbus.handshake import Registration
from mcpbus.methods import initialize_result
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import encode_result
from mcpbus.protocol.revisions import Revision
from mcpbus.routing import Line
from mcpbus.session import Close, OpenGet, Session
from mcpbus.stream import Stream, Writer
from mcpbus.transport import answers
from mcpbus.transport.answering import Answering, HttpRequest
from mcpbus.transport.answers import GET_FORM, LISTEN_FORM, Form, HeaderList
from mcpbus.transport.batches import begin_batch
from mcpbus.transport.decisions import (
    ACCEPTED,
    AcceptNotification,
    Answer,
    Batch,
    DeliverResponse,
    Head,
    Initialize,
    Serve,
    refusal,
)
from mcpbus.transport.exchange import Exchange, health
from mcpbus.transport.gate import HttpOptions
from mcpbus.transport.http_sse import HttpSse
from mcpbus.transport.resuming import resume
from mcpbus.transport.sse import HEADERS, encode_event

if TYPE_CHECKING:
    from mcpbus.bus import Bus

ResponseMode: TypeAlias = Literal["auto", "json", "sse"]


class Endpoint:
    """The endpoint of an open bus.

    Args:
        bus: The bus.
        options: How the endpoint is served.
        response: The form of answers: chosen late for each ("auto"), always JSON, or always an SSE stream.

    Raises:
        ValueError: There is no such form.
    """

    def __init__(self, bus: "Bus", options: HttpOptions, response: ResponseMode) -> None:
        if response not in {"auto", "json", "sse"}:
            raise ValueError(f"response is {response!r}: it must be 'auto', 'json' or 'sse'")
        self.options = options
        self.exchange: Exchange[Session] = Exchange(options, bus)
        self._bus = bus
        self._stateless = options.sessions == "stateless"
        self._sse = HttpSse(bus, self.exchange) if options.http_sse and not self._stateless else None
        preferred = Form(json=response != "sse", sse=response != "json")
        self._forms = {
            (json, sse): preferred.narrow(accepts_json=json, accepts_sse=sse)
            for json in (True, False)
            for sse in (True, False)
        }

    def cors_headers(self, head: Head) -> HeaderList:
        """Return the fields that a shell adds to the answer, whatever it is."""
        return self.exchange.cors_headers(head)

    async def serve(self, http: HttpRequest) -> None:
        """Serve one request, to its end.

        Raises:
            trio.BrokenResourceError: The client went away before its request was complete, or did not take the answer.
        """
        head, exchange = http.head, self.exchange
        if self._bus.admission.closed and exchange.is_health(head):
            await http.answer(health("draining", 503))
            return
        if self._sse is not None and head.path == self.options.sse_path:
            await self._sse.serve(http)
            return
        verdict = exchange.judge_head(head)
        if isinstance(verdict, Answer):
            await http.answer(verdict)
            return
        principal = None
        if self._bus.server.authenticate is not None:
            try:
                principal = await self._bus.server.authenticate(head)
            except Unauthorized as refused:
                await http.answer(answers.challenge(refused))
                return
        if verdict.verb == "POST":
            await self._post(http, principal)
        elif verdict.verb == "GET":
            await self._get(http, principal)
        else:
            await self._delete(http, principal)

    async def _post(self, http: HttpRequest, principal: Any) -> None:
        exchange = self.exchange
        wanted = exchange.judge_post(http.head)
        if isinstance(wanted, Answer):
            await http.answer(wanted)
            return
        body = await http.read_body(wanted.limit)
        if body is None:
            await http.answer(exchange.too_large())
            return
        match exchange.judge_body(http.head, body, principal):
            case Answer() as reply:
                await http.answer(reply)
            case Serve() as decision:
                await self._request(http, decision, principal)
            case Batch() as batch:
                await self._batch(http, batch, principal)
            case Initialize() as decision:
                await self._initialize(http, decision, principal)
            case AcceptNotification() as decision:
                dispatch.notify(decision.notification, decision.session)
                await http.answer(ACCEPTED)
            case DeliverResponse() as decision:
                # 202 also where nobody waits for it: a 4xx would make some clients give up.
                dispatch.answer(decision.response, decision.session)
                await http.answer(ACCEPTED)

    async def _request(self, http: HttpRequest, decision: Serve[Session], principal: Any) -> None:
        form = self._forms[decision.accepts_json, decision.accepts_sse]
        stateless = decision.claim is None and decision.session is None
        inbound = Inbound(
            decision.request,
            decision.routing,
            decision.revision,
            form.setting(stateless=stateless),
            decision.claim,
            decision.session,
            principal,
        )
        try:
            open_stream = partial(self._bus.open_stream, session=decision.session)
            host = http.host
            result = dispatch.serve(self._bus, inbound, open_stream, None if host is None else host.scope)
        except ProtocolError as error:
            await http.answer(answers.error_reply(error, inbound.request.id, inbound.revision))
            return
        if isinstance(result, Brief):
            await self._run(http, inbound, form, result)
        elif isinstance(result, Stream):
            form = LISTEN_FORM if decision.request.method == LISTEN else form
            await self._stream(http, result, form, inbound.revision)
        else:
            await self._reply(http, inbound, form, result)

    async def _batch(self, http: HttpRequest, batch: Batch[Session], principal: Any) -> None:
        form = attrs.evolve(self._forms[batch.accepts_json, batch.accepts_sse], array=True)
        begun = begin_batch(self._bus, batch, form.setting(stateless=batch.session is None), principal)
        if isinstance(begun, Stream):
            await self._stream(http, begun, form, None)
        else:
            await http.answer(begun)

    async def _initialize(self, http: HttpRequest, decision: Initialize, principal: Any) -> None:
        form = self._forms[decision.accepts_json, decision.accepts_sse]
        setting = form.setting(stateless=self._stateless)
        inbound = Inbound(decision.request, decision.routing, decision.revision, setting, principal=principal)
        bus = self._bus
        if self._stateless:
            result = initialize_result(bus.server, bus.features, decision.revision, stateless=True)
            await self._reply(http, inbound, form, result)
            return
        try:
            session = bus.open_session(setting, principal)
            inbound = msgspec.structs.replace(inbound, session=session)
            registration = Registration(bus, session, decision.params, decision.revision)
            registered = dispatch.register(bus, inbound, registration, bus.open_stream)
        except ProtocolError as error:
            await http.answer(answers.error_reply(error, inbound.request.id, inbound.revision))
            return
        if isinstance(registered, Stream):
            # The session's id goes into the head, which therefore waits for the outcome.
            await self._stream(http, registered, attrs.evolve(form, patient=True), inbound.revision)
        else:
            await self._reply(http, inbound, form, registered, session.id)

    async def _get(self, http: HttpRequest, principal: Any) -> None:
        decision = self.exchange.judge_get(http.head, principal)
        if isinstance(decision, Answer):
            await http.answer(decision)
            return
        session = decision.session
        session.touch()
        if self._bus.admission.closed:
            await http.answer(refusal(503, Overloaded("The server is shutting down")))
            return
        if decision.last_event_id is not None:
            await resume(self._bus, http, session, decision.last_event_id)
            return
        stream = self._bus.open_stream(Line.GET, session)
        session.address.tell(OpenGet(stream))
        await self._stream(http, stream, GET_FORM, None)

    async def _delete(self, http: HttpRequest, principal: Any) -> None:
        decision = self.exchange.judge_delete(http.head, principal)
        if isinstance(decision, Answer):
            await http.answer(decision)
            return
        decision.session.address.tell(Close(None))
        await http.answer(Answer(204))

    async def _reply(
        self,
        http: HttpRequest,
        inbound: Inbound,
        form: Form,
        result: bytes | ProtocolError,
        session_id: str | None = None,
    ) -> None:
        """Answer with a result, or an error, that was there at once."""
        receipt = self._bus.ledger.enter(inbound.request.method)
        if isinstance(result, ProtocolError):
            reply = answers.failed(result, inbound.request.id, inbound.revision)
        else:
            data = encode_result(inbound.request.id, result)
            if form.json:
                reply = answers.whole(data, session_id)
            else:
                reply = Answer(200, [*HEADERS, *answers.session_header(session_id)], encode_event(data))
        try:
            await http.answer(reply)
            receipt.settle(DELIVERED)
        finally:
            if receipt.fate is None:
                receipt.discard(Reason.LOST)

    async def _stream(
        self,
        http: HttpRequest,
        stream: Stream,
        form: Form,
        revision: Revision | None,
        attached: Writer | None = None,
    ) -> None:
        """Attach the request's connection to a stream, and write what comes until one of them ends."""
        with attached or stream.attach() as writer:
            answering = Answering(http, stream, writer, form, revision)
            if not form.json or not await answering.at_once():
                await answering.run(self._bus.limits)

    async def _run(self, http: HttpRequest, inbound: Inbound, form: Form, brief: Brief) -> None:
        """Run a handler, and answer with what comes of it; if it waits, another task does."""
        if not form.json:
            brief.appear()  # what an event stream needs, a stream knows
        result = brief.begin()
        if result is not None:
            await self._reply(http, inbound, form, result)
            return
        stream, guest, host = brief.stream, brief.guest, http.host
        assert stream is not None  # noqa: S101 - there is no result
        assert host is not None  # noqa: S101 - there would be no brief
        answer = partial(self._stream, http, stream, form, inbound.revision, brief.writer)
        if guest.outcome is None:
            host.leave(answer)
            await guest.go_on()
        elif guest.cancelled:
            host.leave(answer)  # the scope of this task is cancelled too
        else:
            await answer()
