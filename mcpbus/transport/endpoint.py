"""Streamable HTTP in both eras: carries out what the `exchange` judges, for any shell that speaks HTTP.

A shell hands in one `HttpRequest` at a time. While a handler runs, its client's disconnect is watched for; the
form of the answer is chosen when its first bytes are due.
"""

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import attrs
import trio

from mcpbus import dispatch
from mcpbus.authentication import Unauthorized
from mcpbus.dispatch import LISTEN, Inbound
from mcpbus.fate import DELIVERED, Reason
from mcpbus.handshake import Registration
from mcpbus.methods import initialize_result
from mcpbus.options import Limits
from mcpbus.outbox import Outgoing
from mcpbus.protocol.errors import ProtocolError, invalid_request
from mcpbus.protocol.jsonrpc import encode_result
from mcpbus.protocol.revisions import Revision
from mcpbus.routing import Line
from mcpbus.session import Close, OpenGet, Session
from mcpbus.stream import Stream, Writer
from mcpbus.transport import answers
from mcpbus.transport.answers import GET_FORM, LISTEN_FORM, Form, HeaderList
from mcpbus.transport.decisions import (
    ACCEPTED,
    AcceptNotification,
    Answer,
    DeliverResponse,
    Head,
    Initialize,
    Serve,
    refusal,
)
from mcpbus.transport.exchange import Exchange, health
from mcpbus.transport.gate import HttpOptions
from mcpbus.transport.sse import COMMENT, HEADERS, encode_event

if TYPE_CHECKING:
    from mcpbus.bus import Bus

ResponseMode: TypeAlias = Literal["auto", "json", "sse"]


class HttpRequest(Protocol):
    """One HTTP request, as a shell hands it in."""

    head: Head

    async def read_body(self, limit: int) -> bytes | None:
        """Read the whole body; None if it is longer than `limit` bytes.

        Raises:
            trio.BrokenResourceError: The client went away.
        """

    async def answer(self, reply: Answer) -> None:
        """Send a whole response. Returns, having done nothing, where the client has gone."""

    async def start_stream(self, headers: HeaderList) -> None:
        """Begin a response of status 200 that `write` goes on with."""

    async def write(self, data: bytes, *, more: bool) -> None:
        """Write a part of the response, the last one unless `more`."""

    async def disconnected(self) -> None:
        """Return when the client has gone; called after the body was read."""


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
        preferred = Form(json=response != "sse", sse=response != "json")
        self._forms = {
            (json, sse): preferred.narrow(accepts_json=json, accepts_sse=sse)
            for json in (True, False)
            for sse in (True, False)
        }

    async def serve(self, http: HttpRequest) -> None:
        """Serve one request, to its end.

        Raises:
            trio.BrokenResourceError: The client went away before its request was complete.
        """
        head, exchange = http.head, self.exchange
        if self._bus.admission.closed and exchange.is_health(head):
            await http.answer(health("draining", 503))
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
            result = dispatch.serve(self._bus, inbound, self._bus.open_stream)
        except ProtocolError as error:
            await http.answer(answers.error_reply(error, inbound.request.id, inbound.revision))
            return
        if isinstance(result, Stream):
            form = LISTEN_FORM if decision.request.method == LISTEN else form
            await self._stream(http, result, form, inbound.revision)
        else:
            await self._reply(http, inbound, form, result)

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
            inbound = attrs.evolve(inbound, session=session)
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
        if decision.last_event_id is not None:
            fault = (
                "Last-Event-ID names no event: the streams of this server cannot be resumed; open a new one"
            )
            await http.answer(refusal(400, invalid_request(fault)))
            return
        session = decision.session
        session.touch()
        stream = self._bus.open_stream(Line.GET, session.address)
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
        self, http: HttpRequest, inbound: Inbound, form: Form, result: bytes, session_id: str | None = None
    ) -> None:
        """Answer with a result that was there at once."""
        receipt = self._bus.ledger.enter(inbound.request.method)
        data = encode_result(inbound.request.id, result)
        try:
            with trio.move_on_after(self._bus.limits.write_deadline):
                if form.json:
                    await http.answer(answers.whole(data, session_id))
                else:
                    headers = [*HEADERS, *answers.session_header(session_id)]
                    await http.answer(Answer(200, headers, encode_event(data)))
                receipt.settle(DELIVERED)
        finally:
            if receipt.fate is None:
                receipt.discard(Reason.LOST)

    async def _stream(self, http: HttpRequest, stream: Stream, form: Form, revision: Revision | None) -> None:
        """Attach the request's connection to a stream, and write what comes until one of them ends."""
        with stream.attach() as writer:
            answering = _Answering(http, stream, writer, form, revision)
            if form.json and await answering.at_once(self._bus.limits):
                return
            async with trio.open_nursery() as nursery:
                writer.connection = nursery.cancel_scope
                nursery.start_soon(_watch, http, nursery.cancel_scope)
                while await answering.step(nursery.cancel_scope, self._bus.limits):
                    pass
                nursery.cancel_scope.cancel()


class _Answering:
    """The response of one request, as far as it has got."""

    def __init__(
        self, http: HttpRequest, stream: Stream, writer: Writer, form: Form, revision: Revision | None
    ) -> None:
        self._http = http
        self._stream = stream
        self._writer = writer
        self._form = form
        self._revision = revision
        self._started = False
        self._batch: list[Outgoing] | None = []

    async def at_once(self, limits: Limits) -> bool:
        """Answer in JSON if the reply is there within a few turns of the scheduler, and return whether it was.

        A client that disconnects meanwhile is noticed by the write, or not at all: the reply was made.
        """
        batch = self._batch = await self._writer.take_soon()
        if not batch or not self._is_whole(batch):
            return False
        with trio.move_on_after(limits.write_deadline):
            await self._http.answer(answers.whole_reply(batch[0], self._revision))
            self._writer.written()
        return True

    async def step(self, connection: trio.CancelScope, limits: Limits) -> bool:
        """Write the next batch, or a comment where there was none for the keep-alive time.

        Returns:
            Whether there may be more: not after the last message, nor after a write that missed its deadline,
            nor to a client that has gone meanwhile. What was being written then is not delivered.
        """
        form = self._form
        batch, self._batch = self._batch, []
        if not batch and batch is not None and (self._started or not form.early):
            patient = not self._started and (form.patient or not form.sse)
            batch = await self._writer.take(float("inf") if patient else limits.keep_alive)
        more = False
        with trio.move_on_after(limits.write_deadline) as deadline:
            more = await self._write(batch)
        if deadline.cancelled_caught or connection.cancel_called:
            return False
        if batch:
            self._writer.written()
        return more

    async def _write(self, batch: list[Outgoing] | None) -> bool:
        http = self._http
        if batch is None:
            await (
                http.write(b"", more=False)
                if self._started
                else http.answer(answers.unanswered(self._stream))
            )
            return False
        if self._is_whole(batch):
            await http.answer(answers.whole_reply(batch[0], self._revision))
            return False
        final = bool(batch) and batch[-1].final
        if not self._started:
            self._started = True
            await http.start_stream(answers.stream_headers(batch))
        events = b"".join([encode_event(message.data) for message in batch]) or COMMENT
        await http.write(events, more=not final)
        return not final

    def _is_whole(self, batch: list[Outgoing]) -> bool:
        """Tell whether the answer can be JSON: nothing was said before the reply."""
        return self._form.json and not self._started and len(batch) == 1 and batch[0].final


async def _watch(http: HttpRequest, connection: trio.CancelScope) -> None:
    """Cancel the connection's scope when its client disconnects."""
    await http.disconnected()
    connection.cancel()
