"""Streamable HTTP in both eras: the one entrance of all HTTP requests, whatever carries them.

A request is a head, a body that may still arrive, and a place to answer. `HeadValidator` and `RequestValidator` judge it, and
`RequestHandler` carries out their decisions. The form of the response is chosen when its first bytes are due.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from mcpbus.core.backend import ReadsCalls
from mcpbus.core.hub import Hub
from mcpbus.core.receipt import Fate
from mcpbus.core.sessions.session import Session
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
from mcpbus.transports import responses
from mcpbus.transports.access_control import AccessControl, authorize, verify
from mcpbus.transports.deferred import Served, serve_later, serve_when_read
from mcpbus.transports.http_sse import HttpSse
from mcpbus.transports.ledger_responses import LedgerResponse, RecordedResponse
from mcpbus.transports.request_handler import Decision, RequestHandler, ResponseMode
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import ResponseSink, SettleableResponse, TaskResponse
from mcpbus.transports.response_writer import ResponseWriter
from mcpbus.transports.responses import HeaderList
from mcpbus.transports.resumption import resume
from mcpbus.transports.websocket import WebSockets


class Serving(Protocol):
    """A function that serves a request whose sender is known, as `Endpoint.respond` does."""

    def __call__(
        self, head: RequestHead, body: bytes | None, principal: Any, sink: ResponseSink, /
    ) -> Served:
        """Serve a request."""


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

    def is_head_valid(self, head: RequestHead) -> bool:
        """Whether this is the head of a POST in which everything is in order that is judged by the head alone."""
        if head.path == self._sse_path and self._sse is not None:
            return self._sse.clears(head)
        verdict = self._judge(head)
        if isinstance(verdict, HttpResponse) or verdict.verb != "POST":
            return False
        return not isinstance(self.heads.validate_post(head), HttpResponse)

    def respond(
        self, head: RequestHead, body: bytes | None, sink: ResponseSink, *, cleared: bool = False
    ) -> Served:
        """Serve a request. No schedule point.

        Args:
            head: The request before its body.
            body: The whole body; None if it still arrives, and `sink` reads it.
            sink: The place to answer.
            cleared: Whether `is_head_valid` was true of this very head.

        Returns:
            The whole response. Otherwise the sink gets it, or the stream on which it comes. An eager task waits, and the host that
            runs the task that `sink.scope` encloses has to finish it, or to leave that task if it has been cancelled.
        """
        sse = self._sse if head.path == self._sse_path else None
        # The length is compared again: the head of a chunked body does not contain it.
        if cleared and (body is None or len(body) <= self.max_body_bytes):
            serve = self._post if sse is None else sse.receive
        else:
            verdict = self._judge(head) if sse is None else sse.judge(head)
            if isinstance(verdict, HttpResponse):
                return self._access.refuse(verdict, head, sink.peer)
            serve = self._validate_and_serve if sse is None else sse.respond
        auth = self._auth
        if auth is not None:
            found = auth.recall(head, sink.peer)
            if not isinstance(found, NewToken):
                if isinstance(found, HttpResponse):
                    return self._access.refuse(found, head, sink.peer)
                return serve(head, body, found, sink)
            ask = partial(verify, auth, found, self.heads.origin(head, sink.peer))
        elif not self._authenticates:
            return serve(head, body, None, sink)
        else:
            ask = partial(authorize, self._backend, self.heads, head, sink.peer)
        return serve_later(sink, self._ask_and_serve(ask, serve, head, body, sink))

    async def _ask_and_serve(
        self,
        ask: Callable[[], Awaitable[tuple[Any, HttpResponse | None]]],
        serve: Serving,
        head: RequestHead,
        body: bytes | None,
        sink: ResponseSink,
    ) -> Served:
        """Ask who sends a request, and serve it."""
        principal, refused = await ask()
        if refused is not None:
            return self._access.refuse(refused, head, sink.peer)
        return self._serve_after_wait(serve, head, body, principal, sink)

    def _serve_after_wait(
        self, serve: Serving, head: RequestHead, body: bytes | None, principal: Any, sink: ResponseSink
    ) -> Served:
        """Serve a request that has waited for its sender to be known, or for its body."""
        return serve(head, body, principal, sink)

    def _validate_and_serve(
        self, head: RequestHead, body: bytes | None, principal: Any, sink: ResponseSink
    ) -> Served:
        if head.verb != "POST":
            if head.verb == "GET":
                return self._get(head, principal, sink)
            return self._delete(head, principal, sink.peer)
        wanted = self.heads.validate_post(head)
        if isinstance(wanted, NeedsBody):
            if body is None or len(body) <= wanted.limit:
                return self._post(head, body, principal, sink)
            wanted = self.heads.too_large
        return self._access.refuse_body(wanted, head, principal, sink.peer)

    async def stream(self, opened: StreamedResponse, http: TaskResponse) -> None:
        """Write the messages of a stream until it or the connection ends."""
        with opened.writer:
            response = ResponseWriter(http, opened)
            if not opened.form.json or not await response.at_once():
                await response.run(self.limits)

    def entered(self, answer: HttpResponse, give_up: Callable[[], object] | None = None) -> RecordedResponse:
        """Count an answer while it is written, and enter it in the books if it is a reply: ``with endpoint.entered(answer): ...``."""
        return RecordedResponse(self.record_response(answer), self.budget, len(answer.body), give_up)

    def record_response(self, answer: HttpResponse) -> SettleableResponse | None:
        """Enter an answer of `respond` in the books, if it is a reply; whoever writes it settles what became of it."""
        if answer.context is not None:
            return self._bus.ledger.emit(answer.context.request.method, answer.context)
        if isinstance(answer, LedgerResponse):
            answer.enter()
            return answer
        return None

    def record(self, answer: HttpResponse, fate: Fate) -> None:
        """Enter an answer of `respond` in the books, if it is a reply, together with what has become of it."""
        if answer.context is not None:
            self._bus.ledger.emit_settled(fate, answer.context)
        elif isinstance(answer, LedgerResponse):
            answer.record(fate)

    def _judge(self, head: RequestHead) -> HttpResponse | Proceed:
        if self._bus.draining and self.heads.is_health(head):
            return health("draining", 503, responses.RETRY_AFTER)
        return self.heads.validate_head(head)

    def _post(self, head: RequestHead, body: bytes | None, principal: Any, sink: ResponseSink) -> Served:
        if body is None:
            return serve_when_read(sink, self.max_body_bytes, partial(self._post_read, head, principal, sink))
        decision = self._exchange.validate_body(head, body, principal)
        if self._auth is not None:
            decision = self._lacking(self._auth, principal, decision) or decision
        peer = sink.peer
        if self._proxied:
            peer = self.heads.origin(head, peer)
        return self._responder.carry_out(decision, head, principal, peer, sink)

    def _post_read(self, head: RequestHead, principal: Any, sink: ResponseSink, body: bytes | None) -> Served:
        if body is None:
            return self._access.refuse_body(self.heads.too_large, head, principal, sink.peer)
        return self._serve_after_wait(self._post, head, body, principal, sink)

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

    def _get(self, head: RequestHead, principal: Any, sink: ResponseSink) -> HttpResponse | None:
        decision = self._validate_get(head, principal)
        if isinstance(decision, HttpResponse):
            return self._access.refuse(decision, head, sink.peer)
        seen = decision.last_event_id
        if seen is None:
            self._responder.open(decision, principal, sink)
        else:
            sink.respond_in_task(partial(resume, self._bus, decision.session, seen, principal))
        return None

    def _delete(self, head: RequestHead, principal: Any, peer: Peer) -> HttpResponse:
        decision = self._access.lacking(principal) or self._exchange.validate_delete(head, principal)
        if isinstance(decision, HttpResponse):
            return self._access.refuse(decision, head, peer)
        return self._responder.end(decision)


def _host(address: SplitResult) -> str:
    """The host of an address, as a Host field has it."""
    name = address.hostname or ""
    return f"[{name}]" if ":" in name else name
