"""Streamable HTTP in both eras: carries out what `HeadValidator` and `RequestValidator` judge, for any shell that speaks HTTP.

A shell hands in one `HttpRequest` at a time. While a handler runs, its client's disconnect is watched for; the
form of the answer is chosen when its first bytes are due.

Where a request whose own task writes the answer is given the stream on which that comes.

What the rules of HTTP ask of a bus before a request is let in.
"""

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import attrs
import trio
from mcpbus_actors import EagerTask

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.backend import ReadsCalls
from mcpbus.core.hub import Hub
from mcpbus.core.receipt import Fate
from mcpbus.core.session import Session
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.http.bearer import NewToken
from mcpbus.protocol.http.head_validation import HeadValidator, health
from mcpbus.protocol.http.messages import (
    Batch,
    HttpResponse,
    NeedsBody,
    OpenStream,
    Proceed,
    RequestHead,
    Serve,
)
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.http.resource_metadata import WELL_KNOWN, ResourceMetadata
from mcpbus.protocol.http.validation import RequestValidator
from mcpbus.protocol.principals import Peer
from mcpbus.transports import answers
from mcpbus.transports.access import AccessControl
from mcpbus.transports.answers import HeaderList
from mcpbus.transports.authorizing import authorize, verify
from mcpbus.transports.entered import RecordedResponse
from mcpbus.transports.entered_answer import LedgerResponse
from mcpbus.transports.http_sse import HttpSse
from mcpbus.transports.outlets import HttpRequest, InlineResponseSink, KeepAliveHandler, SettleableResponse
from mcpbus.transports.rendering import StreamedResponse
from mcpbus.transports.responder import Decision, RequestHandler, ResponseMode
from mcpbus.transports.response import ResponseWriter
from mcpbus.transports.resumption import resume
from mcpbus.transports.websocket import WebSockets


class StreamOutlet:
    """The outlet of a request whose own task writes the answer."""

    __slots__ = ("opened", "scope")

    gathers = False

    def __init__(self, scope: trio.CancelScope | None = None) -> None:
        self.scope = scope
        self.opened: StreamedResponse | None = None

    def open(self, opened: StreamedResponse) -> None:
        """See `ResponseSink`: whoever has made it looks for the stream here."""
        self.opened = opened

    def on_handler_waiting(self, _request: KeepAliveHandler, _quiet: float) -> None:
        """See `ResponseSink`: the task writes what comes on a stream."""


class HubLookup:
    """Its sessions, methods and tools; see `mcpbus.protocol.http.messages.ServerLookup`.

    Args:
        bus: The bus.
    """

    def __init__(self, bus: Hub) -> None:
        backend = bus.backend
        self.find_local_session = bus.session_directory.find
        self.offers = backend.offers
        self.mirrored_parameters = backend.mirrored_parameters
        self.call_reader = backend.call_reader if isinstance(backend, ReadsCalls) else _read_in_parts


def _read_in_parts(_tool: str) -> None:
    """Leave the arguments of all calls for later."""


_POST: Final = Proceed("POST")


class Endpoint:
    """The endpoint of an open bus.

    Args:
        bus: The bus.
        options: How the endpoint is served.
        response: The form of answers: chosen late for each ("auto"), always JSON, or always an SSE stream.

    Attributes:
        options: The same.
        limits: Those of the bus.
        budget: Where it is counted what waits for clients.
        max_body_bytes: The longest body of a request that is served.
        heads: Judges the heads of requests.
        websockets: The same endpoint for WebSockets.

    Raises:
        ValueError: There is no such form.
        RegistrationError: Something needs scopes, and there is no `auth` to ask for them.
    """

    def __init__(self, bus: Hub, options: HttpOptions, response: ResponseMode) -> None:
        auth = bus.auth
        metadata = None
        if auth is not None:
            resource = urlsplit(auth.resource)
            metadata = ResourceMetadata(auth.document, unquote(resource.path), options)
            # Where clients reach it is said there already. What its requests name changes nothing else.
            options = attrs.evolve(options, allowed_hosts=(*options.allowed_hosts, _host(resource)))
        else:
            bus.backend.open_to_all()
        self.options = options
        self.limits = bus.limits
        self.budget = bus.budget
        self.max_body_bytes = options.max_body_bytes
        self.heads = HeadValidator(options, metadata)
        self._exchange: RequestValidator[Session] = RequestValidator(options, HubLookup(bus))
        self._access = AccessControl(bus, self.heads)
        self.websockets = WebSockets(bus, self.heads, self._access)
        self._proxied = self.heads.proxies is not None
        self._auth = auth
        self._authenticates = bus.backend.authenticate is not None
        self._bus = bus
        self._backend = bus.backend
        stateless = options.sessions == "stateless"
        self._responder = RequestHandler(bus, response, self._access.refusals, stateless=stateless)
        self._sse = HttpSse(bus, self.heads, self._access) if options.http_sse and not stateless else None
        self._sse_path = None if self._sse is None else options.sse_path
        self._own_paths = {options.path, *options.health_paths}
        if self._sse is not None:
            self._own_paths.add(options.sse_path)

    def has_path(self, path: str) -> bool:
        """Whether a path is the endpoint's own: its address, those of HTTP+SSE and of probes, and its metadata."""
        return path in self._own_paths or (self.heads.metadata is not None and path.startswith(WELL_KNOWN))

    def cors_headers(self, head: RequestHead) -> HeaderList:
        """Return the fields that a shell adds to the answer, whatever it is."""
        return self.heads.cors_headers(head)

    def can_serve_inline(self, head: RequestHead) -> bool:
        """Whether `respond` can serve a request once its body is there: nothing has to be waited for but its author's code."""
        return head.path == self._sse_path or head.headers.raw(b"last-event-id") is None

    def is_head_valid(self, head: RequestHead) -> bool:
        """Whether this is the head of a POST in which everything is in order that is judged by the head alone."""
        if head.path == self._sse_path and self._sse is not None:
            return self._sse.clears(head)
        verdict = self._judge(head)
        if isinstance(verdict, HttpResponse) or verdict.verb != "POST":
            return False
        return not isinstance(self.heads.validate_post(head), HttpResponse)

    def respond(
        self, head: RequestHead, body: bytes, outlet: InlineResponseSink, *, cleared: bool = False
    ) -> HttpResponse | EagerTask | None:
        """Serve a request whose head is immediate. No schedule point.

        Args:
            head: The request before its body.
            body: The whole of it.
            outlet: Who writes the answer if it comes on a stream.
            cleared: Whether `is_head_valid` was true of this very head.

        Returns:
            The whole answer. Otherwise the outlet is given it, or the stream on which it comes; an eager task waits, and whoever
            runs the task that `outlet.scope` encloses has to finish it, or to leave that task if it has been cancelled.
        """
        sse = self._sse if head.path == self._sse_path else None
        # The length is looked at again: the head of a chunked body does not tell it.
        if cleared and len(body) <= self.max_body_bytes:
            serve = self._post if sse is None else sse.receive
        else:
            verdict = self._judge(head) if sse is None else sse.judge(head)
            if isinstance(verdict, HttpResponse):
                return self._access.refuse(verdict, head, outlet.peer)
            serve = self._validate_and_serve if sse is None else sse.respond
        auth = self._auth
        if auth is not None:
            found = auth.recall(head, outlet.peer)
            if not isinstance(found, NewToken):
                if isinstance(found, HttpResponse):
                    return self._access.refuse(found, head, outlet.peer)
                return serve(head, body, found, outlet)
            ask = partial(verify, auth, found, self.heads.origin(head, outlet.peer))
        elif not self._authenticates:
            return serve(head, body, None, outlet)
        else:
            ask = partial(authorize, self._backend, self.heads, head, outlet.peer)
        eager = EagerTask(
            outlet.scope,
            coroutine=self._ask_and_serve(ask, serve, head, body, outlet),
            context=copy_context(),
        )
        # One that has ended was cancelled nevertheless if the handler was, whose task it is.
        return None if eager.start() and not outlet.scope.cancel_called else eager

    def _validate_and_serve(
        self, head: RequestHead, body: bytes, principal: Any, outlet: InlineResponseSink
    ) -> HttpResponse | EagerTask | None:
        if head.verb != "POST":
            if head.verb == "GET":
                return self._get(head, principal, outlet)
            return self._delete(head, principal, outlet.peer)
        wanted = self.heads.validate_post(head)
        if isinstance(wanted, NeedsBody):
            if len(body) <= wanted.limit:
                return self._post(head, body, principal, outlet)
            wanted = self.heads.too_large
        return self._access.refuse_body(wanted, head, principal, outlet.peer)

    async def _ask_and_serve(
        self,
        ask: Callable[[], Awaitable[tuple[Any, HttpResponse | None]]],
        serve: Callable[..., HttpResponse | EagerTask | None],
        head: RequestHead,
        body: bytes,
        outlet: InlineResponseSink,
    ) -> None:
        """Ask who sends a request, and serve it."""
        try:
            principal, refused = await ask()
            if refused is None:
                result = serve(head, body, principal, outlet)
            else:
                result = self._access.refuse(refused, head, outlet.peer)
            if isinstance(result, HttpResponse):
                outlet.finish(result)
                return
        except Exception as failure:  # noqa: BLE001 - the author's code; nobody else is there to hear of it
            outlet.fail(failure)
            return
        if result is not None:
            await result.finish()

    async def serve(self, http: HttpRequest) -> HttpResponse | None:
        """Serve one request.

        Returns:
            The whole answer, which whoever called writes within `entered`; None if it came on a stream, and has been written.

        Raises:
            trio.BrokenResourceError: The client went away before its request was complete, or did not take the answer.
        """
        head = http.head
        if head.path == self._sse_path and self._sse is not None:
            return await self._serve_sse(self._sse, http)
        verdict = _POST if http.head_validated else self._judge(head)
        if isinstance(verdict, HttpResponse):
            return self._access.refuse(verdict, head, http.peer)
        principal, refused = await authorize(self._backend, self.heads, head, http.peer)
        if refused is not None:
            return self._access.refuse(refused, head, http.peer)
        if verdict.verb == "POST":
            return await self._serve_post(http, principal)
        if verdict.verb == "DELETE":
            return self._delete(head, principal, http.peer)
        return await self._serve_get(http, principal)

    async def stream(self, http: HttpRequest, opened: StreamedResponse) -> None:
        """Write what comes on a stream until it or the connection ends."""
        with opened.writer:
            response = ResponseWriter(http, opened)
            if not opened.form.json or not await response.at_once():
                await response.run(self.limits)

    def entered(self, answer: HttpResponse, give_up: Callable[[], object] | None = None) -> RecordedResponse:
        """Count an answer while it is written, and enter it in the books if it is a reply: ``with endpoint.entered(answer): ...``."""
        return RecordedResponse(self.record_response(answer), self.budget, len(answer.body), give_up)

    def record_response(self, answer: HttpResponse) -> SettleableResponse | None:
        """Enter an answer of `respond` in the books, if it is a reply; whoever writes it settles what became of it."""
        if answer.method is not None:
            return self._bus.ledger.emit(answer.method)
        if isinstance(answer, LedgerResponse):
            answer.enter()
            return answer
        return None

    def record(self, answer: HttpResponse, fate: Fate) -> None:
        """Enter an answer of `respond` in the books, if it is a reply, together with what has become of it."""
        if answer.method is not None:
            self._bus.ledger.emit_settled(fate)
        elif isinstance(answer, LedgerResponse):
            answer.record(fate)

    # -- what is the same for whoever waits and whoever does not -----------------------------------

    def _judge(self, head: RequestHead) -> HttpResponse | Proceed:
        if self._bus.draining and self.heads.is_health(head):
            return health("draining", 503, answers.RETRY_AFTER)
        return self.heads.validate_head(head)

    def _post(
        self, head: RequestHead, body: bytes, principal: Any, outlet: InlineResponseSink
    ) -> HttpResponse | EagerTask | None:
        decision = self._exchange.validate_body(head, body, principal)
        if self._auth is not None:
            decision = self._lacking(self._auth, principal, decision) or decision
        peer = outlet.peer
        if self._proxied:
            peer = self.heads.origin(head, peer)
        return self._responder.carry_out(decision, head, principal, peer, outlet)

    def _lacking(self, auth: Authorizer, principal: Any, decision: Decision) -> HttpResponse | None:
        """Return why somebody may not have what they ask for carried out, if their token has to allow more."""
        if isinstance(decision, Serve):
            scopes = self._backend.needed_scopes(
                decision.request, decision.routing, decision.session, principal
            )
            missing = auth.missing(principal, scopes)
            return auth.step_up(missing) if missing else None
        members = decision.members if isinstance(decision, Batch) else ()
        served = [member for member in members if isinstance(member, Serve)]
        return self._access.lacking(
            principal, [(each.request, each.routing, each.session) for each in served]
        )

    def _validate_get(self, head: RequestHead, principal: Any) -> HttpResponse | OpenStream[Session]:
        refused = self._access.lacking(principal)
        if refused is not None:
            return refused
        return self._responder.admit(self._exchange.validate_get(head, principal))

    def _get(self, head: RequestHead, principal: Any, outlet: InlineResponseSink) -> HttpResponse | None:
        decision = self._validate_get(head, principal)
        if isinstance(decision, HttpResponse):
            return self._access.refuse(decision, head, outlet.peer)
        self._responder.open(decision, principal, outlet)
        return None

    def _delete(self, head: RequestHead, principal: Any, peer: Peer) -> HttpResponse:
        decision = self._access.lacking(principal) or self._exchange.validate_delete(head, principal)
        if isinstance(decision, HttpResponse):
            return self._access.refuse(decision, head, peer)
        return self._responder.end(decision)

    # -- what waits --------------------------------------------------------------------------------

    async def _serve_sse(self, sse: HttpSse, http: HttpRequest) -> HttpResponse | None:
        answered = await sse.serve(http)
        if not isinstance(answered, StreamedResponse):
            return answered
        await self.stream(http, answered)
        return None

    async def _serve_post(self, http: HttpRequest, principal: Any) -> HttpResponse | None:
        wanted = self.heads.needs_body if http.head_validated else self.heads.validate_post(http.head)
        if isinstance(wanted, HttpResponse):
            return self._access.refuse_body(wanted, http.head, principal, http.peer)
        try:
            body = await http.read_body(wanted.limit)
        except ServerOverloaded as error:
            return answers.overload(error)
        if body is None:
            return self._access.refuse_body(self.heads.too_large, http.head, principal, http.peer)
        host, decision = http.host, self._exchange.validate_body(http.head, body, principal)
        if self._auth is not None:
            decision = self._lacking(self._auth, principal, decision) or decision
        outlet = StreamOutlet(None if host is None else host.scope)
        peer = self.heads.origin(http.head, http.peer)
        result = self._responder.carry_out(decision, http.head, principal, peer, outlet)
        del body, decision  # a stream lasts, and need not keep the text of its request
        if isinstance(result, HttpResponse):
            return result
        if outlet.opened is not None:
            if host is None or result is None:
                await self.stream(http, outlet.opened)
            else:
                host.leave(partial(self.stream, http, outlet.opened))
                await result.finish()
        return None

    async def _serve_get(self, http: HttpRequest, principal: Any) -> HttpResponse | None:
        decision = self._validate_get(http.head, principal)
        if isinstance(decision, HttpResponse):
            return self._access.refuse(decision, http.head, http.peer)
        if decision.last_event_id is not None:
            await resume(self._bus, http, decision.session, decision.last_event_id, principal)
            return None
        outlet = StreamOutlet()
        self._responder.open(decision, principal, outlet)
        assert outlet.opened is not None  # noqa: S101 - it was given the stream
        await self.stream(http, outlet.opened)
        return None


def _host(address: SplitResult) -> str:
    """The host of an address, as a Host field has it."""
    name = address.hostname or ""
    return f"[{name}]" if ":" in name else name
