"""The ASGI shell: Streamable HTTP in both eras, over the judgement in `exchange`.

It reads a request, has it judged, and writes what comes of it. While a handler runs it watches for the
client's disconnect; the answer's form is chosen when its first bytes are due.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Literal

import attrs
import trio

from mcpbus import dispatch
from mcpbus.admission import Overloaded
from mcpbus.authentication import Unauthorized
from mcpbus.dispatch import LISTEN, Inbound
from mcpbus.fate import DELIVERED, Reason
from mcpbus.handshake import Registration
from mcpbus.methods import initialize_result
from mcpbus.outbox import Outgoing
from mcpbus.protocol.errors import SERVER_ERROR, ProtocolError, internal_error, invalid_request
from mcpbus.protocol.jsonrpc import encode_error, encode_result
from mcpbus.protocol.revisions import Revision
from mcpbus.routing import Line, Setting
from mcpbus.session import Close, OpenGet, Session
from mcpbus.stream import Ending, Stream, Writer
from mcpbus.transport.decisions import (
    ACCEPTED,
    AcceptNotification,
    Answer,
    DeliverResponse,
    Head,
    Initialize,
    NeedsBody,
    Serve,
    answer,
    refusal,
    status_of,
)
from mcpbus.transport.exchange import Exchange, health
from mcpbus.transport.gate import HttpOptions
from mcpbus.transport.headers import Headers
from mcpbus.transport.sse import COMMENT, HEADERS, encode_event

if TYPE_CHECKING:
    from mcpbus.bus import Bus

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HeaderList = list[tuple[bytes, bytes]]

ResponseMode = Literal["auto", "json", "sse"]
_JSON = b"application/json"


class _Disconnected(Exception):
    """The client went away while its request was being read."""


@attrs.frozen
class Form:
    """What form an answer may take.

    Attributes:
        json: Whether it may be JSON.
        sse: Whether it may be an SSE stream.
        early: Whether a stream begins before there is anything to say.
    """

    json: bool = True
    sse: bool = True
    early: bool = False


_STREAM = Form(json=False)
_GET = Form(json=False, early=True)


@attrs.frozen
class _Http:
    """One HTTP request: its judged head, and the ways to its client."""

    head: Head
    receive: Receive
    send: Send
    cors: HeaderList

    async def answer(self, reply: Answer) -> None:
        """Send a whole response."""
        headers = [*reply.headers, *self.cors]
        await self.send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": reply.body})

    async def body(self, limit: int) -> bytes | None:
        """Read the body; None if it is longer than `limit` bytes.

        Raises:
            _Disconnected: The client went away.
        """
        chunks, size = [], 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                return None
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class AsgiApp:
    """The endpoint of an open bus as an ASGI application. Made by `Bus.asgi`; needs no lifespan.

    Args:
        bus: The bus to attach to.
        options: How the endpoint is served.
        response: The form of answers: chosen late for each ("auto"), always JSON, or always an SSE stream.
    """

    def __init__(self, bus: "Bus", options: HttpOptions, response: ResponseMode) -> None:
        if response not in {"auto", "json", "sse"}:
            raise ValueError(f"response is {response!r}: it must be 'auto', 'json' or 'sse'")
        self._bus = bus
        self._exchange: Exchange[Session] = Exchange(options, bus)
        self.path = options.path
        self._stateless = options.sessions == "stateless"
        self._form = Form(json=response != "sse", sse=response != "json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope, as ASGI 3.0 has it."""
        if scope["type"] == "http":
            headers = Headers(scope["headers"])
            path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
            head = Head(scope["method"], path, headers)
            http = _Http(head, receive, send, self._exchange.cors_headers(head))
            try:
                await self._serve(http)
            except _Disconnected:
                return
        elif scope["type"] == "lifespan":
            await _ignore_lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "no WebSocket here"})

    async def drain(self, seconds: float) -> None:
        """End all that goes on, as `Bus.drain`."""
        await self._bus.drain(seconds)

    # -- one request -----------------------------------------------------------------------------

    async def _serve(self, http: _Http) -> None:
        head, exchange = http.head, self._exchange
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
                await http.answer(_challenge(refused))
                return
        if verdict.verb == "POST":
            await self._post(http, principal)
        elif verdict.verb == "GET":
            await self._get(http, principal)
        else:
            await self._delete(http, principal)

    async def _post(self, http: _Http, principal: Any) -> None:
        exchange = self._exchange
        form = exchange.judge_post(http.head)
        if isinstance(form, Answer):
            await http.answer(form)
            return
        body = await http.body(form.limit)
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
                dispatch.notify(self._bus, decision.notification, decision.session)
                await http.answer(ACCEPTED)
            case DeliverResponse() as decision:
                # Nothing was asked, so nothing waits for it; a 4xx would make some clients give up.
                decision.session.touch()
                await http.answer(ACCEPTED)

    async def _request(self, http: _Http, decision: Serve[Session], principal: Any) -> None:
        form = self._choose(
            decision.accepts_json, decision.accepts_sse, listen=decision.request.method == LISTEN
        )
        setting = self._setting(form, stateless=decision.claim is None and decision.session is None)
        inbound = Inbound(
            decision.request,
            decision.routing,
            decision.revision,
            setting,
            decision.claim,
            decision.session,
            principal,
        )
        try:
            result = dispatch.serve(self._bus, inbound, self._bus.open_stream)
        except ProtocolError as error:
            await http.answer(_error(error, inbound))
            return
        await self._reply(http, inbound, form, result)

    async def _initialize(self, http: _Http, decision: Initialize, principal: Any) -> None:
        form = self._choose(decision.accepts_json, decision.accepts_sse)
        setting = self._setting(form, stateless=self._stateless)
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
            await http.answer(_error(error, inbound))
            return
        # The session's id goes into the header, which therefore waits for the outcome.
        await self._reply(http, inbound, form, registered, session_id=session.id, patient=True)

    async def _get(self, http: _Http, principal: Any) -> None:
        decision = self._exchange.judge_get(http.head, principal)
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
        await self._stream(http, stream, _GET, None)

    async def _delete(self, http: _Http, principal: Any) -> None:
        decision = self._exchange.judge_delete(http.head, principal)
        if isinstance(decision, Answer):
            await http.answer(decision)
            return
        decision.session.address.tell(Close(None))
        await http.answer(Answer(204))

    # -- the form of the answer ------------------------------------------------------------------

    def _choose(self, accepts_json: bool, accepts_sse: bool, *, listen: bool = False) -> Form:
        """Choose the forms that an answer may take: the server's, as far as the client takes them."""
        if listen:
            return _STREAM
        sse = accepts_sse and (self._form.sse or not accepts_json)
        return Form(json=accepts_json and (self._form.json or not sse), sse=sse)

    def _setting(self, form: Form, *, stateless: bool) -> Setting:
        if stateless:
            return Setting.STATELESS if form.sse else Setting.STATELESS_JSON
        return Setting.HTTP if form.sse else Setting.HTTP_JSON

    async def _reply(
        self,
        http: _Http,
        inbound: Inbound,
        form: Form,
        result: bytes | Stream,
        *,
        session_id: str | None = None,
        patient: bool = False,
    ) -> None:
        if isinstance(result, Stream):
            await self._stream(http, result, form, inbound.revision, patient=patient)
            return
        receipt = self._bus.ledger.enter(inbound.request.method)
        data = encode_result(inbound.request.id, result)
        try:
            if form.json:
                await http.answer(answer(200, _JSON, data, *_session_header(session_id)))
            else:
                await http.answer(Answer(200, [*HEADERS, *_session_header(session_id)], encode_event(data)))
            receipt.settle(DELIVERED)
        finally:
            if receipt.fate is None:
                receipt.discard(Reason.LOST)

    async def _stream(
        self, http: _Http, stream: Stream, form: Form, revision: Revision | None, *, patient: bool = False
    ) -> None:
        async with trio.open_nursery() as nursery:
            connection = nursery.cancel_scope
            nursery.start_soon(_watch, http.receive, connection)
            with stream.attach(connection) as writer:
                await self._drain_stream(http, stream, writer, form, revision, connection, patient=patient)
            connection.cancel()

    async def _drain_stream(
        self,
        http: _Http,
        stream: Stream,
        writer: Writer,
        form: Form,
        revision: Revision | None,
        connection: trio.CancelScope,
        *,
        patient: bool,
    ) -> None:
        limits = self._bus.limits
        keep_alive = limits.keep_alive if form.sse and not patient else float("inf")
        started = False
        while True:
            if form.early and not started:
                # A first comment makes servers send the head, for which the client waits.
                batch: list[Outgoing] | None = []
            else:
                batch = await writer.take(keep_alive)
            with trio.move_on_after(limits.write_deadline) as deadline:
                if batch is None:
                    await (http.send(_LAST) if started else http.answer(_unanswered(stream)))
                elif form.json and not started and len(batch) == 1 and batch[0].final:
                    await http.answer(_whole(batch[0], revision))
                else:
                    if not started:
                        started = True
                        keep_alive = limits.keep_alive
                        await http.send(_stream_head(batch, http.cors))
                    events = b"".join(encode_event(message.data) for message in batch) or COMMENT
                    more = not (batch and batch[-1].final)
                    await http.send({"type": "http.response.body", "body": events, "more_body": more})
            if batch is None or deadline.cancelled_caught or connection.cancel_called:
                return
            if batch:
                writer.written()
                if batch[-1].final:
                    return


_LAST: Message = {"type": "http.response.body", "body": b"", "more_body": False}


async def _watch(receive: Receive, connection: trio.CancelScope) -> None:
    """Cancel the connection's scope when its client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    connection.cancel()


async def _ignore_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


def _session_header(session_id: str | None) -> HeaderList:
    return [] if session_id is None else [(b"mcp-session-id", session_id.encode())]


def _stream_head(batch: list[Outgoing], cors: HeaderList) -> Message:
    session_id = batch[0].session_id if batch else None
    headers = [*HEADERS, *_session_header(session_id), *cors]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _whole(reply: Outgoing, revision: Revision | None) -> Answer:
    """Make the answer of a request that said nothing before its reply."""
    status = 200
    if reply.error_code is not None and revision is not None:
        status = status_of(reply.error_code, revision)
    return answer(status, _JSON, reply.data, *_session_header(reply.session_id))


def _unanswered(stream: Stream) -> Answer:
    """Make the answer of a request that ended without a reply, before anything was said."""
    if stream.ending is Ending.CANCELLED:
        # A cancelled request is not answered, yet its POST must be.
        return Answer(200, [*HEADERS])
    if stream.ending is Ending.SESSION_ENDED:
        return refusal(404, ProtocolError(SERVER_ERROR, "Session not found: it has ended; initialize again"))
    return refusal(500, internal_error())


def _error(error: ProtocolError, inbound: Inbound) -> Answer:
    status = 503 if isinstance(error, Overloaded) else status_of(error.code, inbound.revision)
    data = encode_error(inbound.request.id, inbound.revision.admissible(error))
    return answer(status, _JSON, data)


def _challenge(refused: Unauthorized) -> Answer:
    header = (b"www-authenticate", refused.challenge.encode("latin-1"))
    why = "Unauthorized" if refused.status == 401 else "Forbidden"
    return refusal(refused.status, invalid_request(why), None, header)
