"""Streamable HTTP in both eras: carries out what the `exchange` judges, for any shell that speaks HTTP.

A shell hands in one `HttpRequest` at a time. While a handler runs, its client's disconnect is watched for; the
form of the answer is chosen when its first bytes are due.
"""

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs
import msgspec
import trio

from actors import Guest
from mcpbus import dispatch
from mcpbus.admission import Overloaded
from mcpbus.authentication import Unauthorized
from mcpbus.brief import Brief
from mcpbus.dispatch import LISTEN
from mcpbus.fate import DELIVERED, LOST, Fate, Receipt
from mcpbus.handshake import Registration
from mcpbus.inbound import Inbound
from mcpbus.methods import initialize_result
from mcpbus.options import Limits
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import encode_result
from mcpbus.protocol.revisions import Revision
from mcpbus.routing import Line
from mcpbus.session import Close, OpenGet, Session
from mcpbus.stream import Stream
from mcpbus.transport import answers
from mcpbus.transport.answering import Answering, HttpRequest, Opened, Outlet, ReadyOutlet
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
    OpenStream,
    Proceed,
    Serve,
    refusal,
)
from mcpbus.transport.exchange import Exchange, health
from mcpbus.transport.gate import HttpOptions
from mcpbus.transport.hosts import NEVER_ENTERED, may_wait
from mcpbus.transport.http_sse import HttpSse
from mcpbus.transport.resuming import resume
from mcpbus.transport.sse import HEADERS, encode_event

if TYPE_CHECKING:
    from mcpbus.bus import Bus

ResponseMode: TypeAlias = Literal["auto", "json", "sse"]
_JSON_HEADERS: HeaderList = (answers.JSON,)
Decision: TypeAlias = (
    Answer
    | Serve[Session]
    | Initialize
    | AcceptNotification[Session]
    | DeliverResponse[Session]
    | Batch[Session]
)
"""What is to be done about a POST."""


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

    @property
    def limits(self) -> Limits:
        """The limits of the bus."""
        return self._bus.limits

    def cors_headers(self, head: Head) -> HeaderList:
        """Return the fields that a shell adds to the answer, whatever it is."""
        return self.exchange.cors_headers(head)

    def is_immediate(self, head: Head) -> bool:
        """Whether `respond` can serve a request once its body is there: nothing has to be waited for but its author's code."""
        return (self._sse is None or head.path != self.options.sse_path) and head.headers.raw(
            b"last-event-id"
        ) is None

    def clears(self, head: Head) -> bool:
        """Whether this is the head of a POST in which everything is in order that is judged by the head alone."""
        verdict = self._judge(head)
        if isinstance(verdict, Answer) or verdict.verb != "POST":
            return False
        return not isinstance(self.exchange.judge_post(head), Answer)

    def respond(
        self, head: Head, body: bytes, outlet: ReadyOutlet, *, cleared: bool = False
    ) -> Answer | Guest | None:
        """Serve a request whose head is immediate. No schedule point.

        Args:
            head: The request before its body.
            body: The whole of it, as long as its Content-Length says.
            outlet: Who writes the answer if it comes on a stream.
            cleared: Whether `clears` was true of this very head.

        Returns:
            The whole answer. Otherwise the outlet is given it, or the stream on which it comes; a guest waits, and whoever runs
            the task that `outlet.scope` encloses has to go on with it, or to leave that task if the guest has been cancelled.
        """
        if not cleared:
            verdict = self._judge(head)
            if isinstance(verdict, Answer):
                return verdict
        serve = self._post if cleared else self._judge_and_serve
        authenticate = self._bus.server.authenticate
        if authenticate is None:
            return serve(head, body, None, outlet)
        guest = Guest(
            outlet.scope,
            coroutine=self._ask_and_serve(authenticate, serve, head, body, outlet),
            context=copy_context(),
        )
        # One that has ended was cancelled nevertheless if the handler was, whose task it is.
        return None if guest.begin() and not outlet.scope.cancel_called else guest

    def _judge_and_serve(
        self, head: Head, body: bytes, principal: Any, outlet: Outlet
    ) -> Answer | Guest | None:
        if head.verb != "POST":
            return self._get(head, principal, outlet) if head.verb == "GET" else self._delete(head, principal)
        wanted = self.exchange.judge_post(head)
        if isinstance(wanted, Answer):
            return wanted
        if len(body) > wanted.limit:
            return self.exchange.too_large()
        return self._post(head, body, principal, outlet)

    async def _ask_and_serve(
        self,
        authenticate: Callable[..., Any],
        serve: Callable[..., Answer | Guest | None],
        head: Head,
        body: bytes,
        outlet: ReadyOutlet,
    ) -> None:
        """Ask who sends a request, and serve it."""
        try:
            try:
                principal = await authenticate(head)
            except Unauthorized as refused:
                result: Answer | Guest | None = answers.challenge(refused)
            else:
                result = serve(head, body, principal, outlet)
            if isinstance(result, Answer):
                outlet.finish(result)
                return
        except Exception as failure:  # noqa: BLE001 - the author's code; nobody else is there to hear of it
            outlet.fail(failure)
            return
        if result is not None and result.outcome is None:
            await result.go_on()

    async def serve(self, http: HttpRequest) -> None:
        """Serve one request, to its end.

        Raises:
            trio.BrokenResourceError: The client went away before its request was complete, or did not take the answer.
        """
        head = http.head
        if self._sse is not None and head.path == self.options.sse_path:
            await self._sse.serve(http)
            return
        verdict = self._judge(head)
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
            await self._serve_post(http, principal)
            return
        desk = _Desk()
        result: Answer | None
        if verdict.verb == "DELETE":
            result = self._delete(head, principal)
        elif head.headers.get(b"last-event-id"):
            result = await self._resume(http, principal)
        else:
            result = self._get(head, principal, desk)
        if isinstance(result, Answer):
            await self._answer(http, result)
        elif desk.opened is not None:
            await self.stream(http, desk.opened)

    async def stream(self, http: HttpRequest, opened: Opened) -> None:
        """Write what comes on a stream until it or the connection ends."""
        with opened.writer:
            answering = Answering(http, opened)
            if not opened.form.json or not await answering.at_once():
                await answering.run(self._bus.limits)

    def enter(self, answer: Answer) -> Receipt | None:
        """Enter an answer of `respond` in the books, if it is a reply; whoever writes it settles what became of it."""
        return None if answer.method is None else self._bus.ledger.enter(answer.method)

    def record(self, answer: Answer, fate: Fate) -> None:
        """Enter an answer of `respond` in the books, if it is a reply, together with what has become of it."""
        if answer.method is not None:
            self._bus.ledger.record(fate)

    # -- what is the same for whoever waits and whoever does not -----------------------------------

    def _judge(self, head: Head) -> Answer | Proceed:
        if self._bus.admission.closed and self.exchange.is_health(head):
            return health("draining", 503)
        return self.exchange.judge_head(head)

    def _post(self, head: Head, body: bytes, principal: Any, outlet: Outlet) -> Answer | Guest | None:
        return self._carry_out(self.exchange.judge_body(head, body, principal), principal, outlet)

    def _carry_out(self, decision: Decision, principal: Any, outlet: Outlet) -> Answer | Guest | None:
        if isinstance(decision, Serve):
            return self._request(decision, principal, outlet)
        match decision:
            case Batch():
                return self._batch(decision, principal, outlet)
            case Initialize():
                return self._initialize(decision, principal, outlet)
            case AcceptNotification():
                dispatch.notify(decision.notification, decision.session)
                return ACCEPTED
            case DeliverResponse():
                # 202 also where nobody waits for it: a 4xx would make some clients give up.
                dispatch.answer(decision.response, decision.session)
                return ACCEPTED
        return decision

    def _request(self, decision: Serve[Session], principal: Any, outlet: Outlet) -> Answer | Guest | None:
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
            result = dispatch.serve(self._bus, inbound, self._bus.open_stream, outlet.scope)
        except ProtocolError as error:
            return answers.error_reply(error, inbound.request.id, inbound.revision)
        if isinstance(result, Brief):
            return self._run(inbound, form, result, outlet)
        if isinstance(result, Stream):
            form = LISTEN_FORM if decision.request.method == LISTEN else form
            _open(outlet, form, inbound.revision, result)
            return None
        return _reply(inbound, form, result)

    def _run(self, inbound: Inbound, form: Form, brief: Brief, outlet: Outlet) -> Answer | Guest | None:
        """Run a handler until it ends or waits."""
        brief.opened = partial(_open, outlet, form, inbound.revision)
        if not form.json:
            brief.open()  # what an event stream needs, a stream knows
        result = brief.run()
        if result is not None:
            return _reply(inbound, form, result)
        return brief if brief.outcome is None or brief.cancelled else None

    def _batch(self, batch: Batch[Session], principal: Any, outlet: Outlet) -> Answer | None:
        form = attrs.evolve(self._forms[batch.accepts_json, batch.accepts_sse], array=True)
        begun = begin_batch(self._bus, batch, form.setting(stateless=batch.session is None), principal)
        if isinstance(begun, Answer):
            return begun
        _open(outlet, form, None, begun)
        return None

    def _initialize(self, decision: Initialize, principal: Any, outlet: Outlet) -> Answer | None:
        form = self._forms[decision.accepts_json, decision.accepts_sse]
        setting = form.setting(stateless=self._stateless)
        inbound = Inbound(decision.request, decision.routing, decision.revision, setting, principal=principal)
        bus = self._bus
        if self._stateless:
            result = initialize_result(bus.server, bus.features, decision.revision, stateless=True)
            return _reply(inbound, form, result)
        try:
            session = bus.open_session(setting, principal)
            inbound = msgspec.structs.replace(inbound, session=session)
            registration = Registration(bus, session, decision.params, decision.revision)
            registered = dispatch.register(bus, inbound, registration, bus.open_stream)
        except ProtocolError as error:
            return answers.error_reply(error, inbound.request.id, inbound.revision)
        if isinstance(registered, Stream):
            # The session's id goes into the head, which therefore waits for the outcome.
            _open(outlet, attrs.evolve(form, patient=True), inbound.revision, registered)
            return None
        return _reply(inbound, form, registered, session.id)

    def _judge_get(self, head: Head, principal: Any) -> Answer | OpenStream[Session]:
        decision = self.exchange.judge_get(head, principal)
        if isinstance(decision, OpenStream):
            decision.session.touch()
            if self._bus.admission.closed:
                return refusal(503, Overloaded("The server is shutting down"))
        return decision

    def _get(self, head: Head, principal: Any, outlet: Outlet) -> Answer | None:
        decision = self._judge_get(head, principal)
        if isinstance(decision, Answer):
            return decision
        stream = self._bus.open_stream(Line.GET, decision.session)
        decision.session.address.tell(OpenGet(stream))
        _open(outlet, GET_FORM, None, stream)
        return None

    def _delete(self, head: Head, principal: Any) -> Answer:
        decision = self.exchange.judge_delete(head, principal)
        if isinstance(decision, Answer):
            return decision
        decision.session.address.tell(Close(None))
        return Answer(204)

    # -- what waits --------------------------------------------------------------------------------

    async def _serve_post(self, http: HttpRequest, principal: Any) -> None:
        wanted = self.exchange.judge_post(http.head)
        if isinstance(wanted, Answer):
            await http.answer(wanted)
            return
        body = await http.read_body(wanted.limit)
        if body is None:
            await http.answer(self.exchange.too_large())
            return
        host, decision = http.host, self.exchange.judge_body(http.head, body, principal)
        if host is None and isinstance(decision, Serve) and self._may_wait(decision):
            await self._host(http, decision, principal)
            return
        desk = _Desk(NEVER_ENTERED if host is None else host.scope)
        result = self._carry_out(decision, principal, desk)
        if isinstance(result, Answer):
            await self._answer(http, result)
        elif desk.opened is None:
            return
        elif host is None or result is None:
            assert result is None or result.outcome is not None  # noqa: S101 - it could not wait
            await self.stream(http, desk.opened)
        else:
            host.leave(partial(self.stream, http, desk.opened))
            await _stay(result)

    def _may_wait(self, decision: Serve[Session]) -> bool:
        request, tool = decision.request, decision.routing.name
        return may_wait(self._bus, request.method, tool, decision.revision.era)

    async def _host(self, http: HttpRequest, decision: Serve[Session], principal: Any) -> None:
        """Run a handler in this very task for as long as it does not wait; if it does, another one answers.

        What that takes, a nursery and a scope, is a third of the cost of a short call. The whole answer is written without them.
        """
        answer: Answer | None = None
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                desk = _Desk(scope)
                result = self._request(decision, principal, desk)
                if isinstance(result, Answer):
                    answer = result
                elif desk.opened is not None:
                    nursery.start_soon(self.stream, http, desk.opened)
                    if result is not None:
                        await _stay(result)
        if answer is not None:
            await self._answer(http, answer)

    async def _resume(self, http: HttpRequest, principal: Any) -> Answer | None:
        decision = self._judge_get(http.head, principal)
        if isinstance(decision, Answer):
            return decision
        await resume(self._bus, http, decision.session, decision.last_event_id or "")
        return None

    async def _answer(self, http: HttpRequest, answer: Answer) -> None:
        receipt = self.enter(answer)
        fate = LOST
        try:
            await http.answer(answer)
            fate = DELIVERED
        finally:
            if receipt is not None:
                receipt.settle(fate)


async def _stay(guest: Guest) -> None:
    """Stay with a handler that waits."""
    if guest.outcome is None:  # otherwise the scope of this task is cancelled
        await guest.go_on()


class _Desk:
    """The outlet of a request whose own task writes the answer."""

    __slots__ = ("opened", "scope")

    def __init__(self, scope: trio.CancelScope | None = None) -> None:
        self.scope = scope
        self.opened: Opened | None = None

    def open(self, opened: Opened) -> None:
        self.opened = opened


def _open(outlet: Outlet, form: Form, revision: Revision | None, stream: Stream) -> None:
    outlet.open(Opened(stream, stream.attach(), form, revision))


def _reply(
    inbound: Inbound, form: Form, result: bytes | ProtocolError, session_id: str | None = None
) -> Answer:
    """The answer with a result, or an error, that was there at once."""
    request = inbound.request
    if isinstance(result, ProtocolError):
        reply = answers.failed(result, request.id, inbound.revision)
        return Answer(reply.status, reply.headers, reply.body, request.method)
    data = encode_result(request.id, result)
    headers = _JSON_HEADERS
    if not form.json:
        data, headers = encode_event(data), HEADERS
    if session_id is not None:
        headers = [*headers, *answers.session_header(session_id)]
    return Answer(200, headers, data, request.method)
