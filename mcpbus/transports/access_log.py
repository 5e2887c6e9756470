"""The access log: a line for each HTTP request when its answer begins. It is off by default, and then costs nothing."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.request_context import RequestContext
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.headers import decode_mirrored
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.jsonrpc import JsonRpcRequest, JsonRpcResponse, Undecodable, decode
from mcpbus.protocol.meta import read_routing
from mcpbus.protocol.principals import Peer
from mcpbus.transports.deferred import Served
from mcpbus.transports.duplex import DuplexChannel
from mcpbus.transports.endpoint import Endpoint
from mcpbus.transports.refusal_log import sanitize_for_log
from mcpbus.transports.response_encoder import ResponseEncoder, StreamedResponse
from mcpbus.transports.response_sinks import ResponseSink, TaskResponse
from mcpbus.transports.responses import HeaderList
from mcpbus.transports.websocket import WebSockets

_log: Final = logging.getLogger("mcpbus.access")

_STREAM: Final = "stream"
_NAMED: Final = frozenset({"tools/call", "prompts/get"})
"""Methods whose name is no client's argument, as a URI is."""


def with_access_log(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint with an access log. Where the program's own level leaves its lines out, that is said."""
    if not _log.isEnabledFor(logging.INFO):
        _log.warning(
            "access_log is on, and its lines are of a level that is not logged: call logging.basicConfig(level=logging.INFO)"
        )
    return cast("Endpoint", _LoggedEndpoint(endpoint))


class _LoggedEndpoint:
    """An endpoint, of which some methods have a line written; see `Endpoint`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._origin = endpoint.heads.origin
        self.websockets = _LoggedWebSockets(endpoint.websockets, self._origin)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    def respond(
        self, head: RequestHead, body: bytes | None, sink: ResponseSink, *, cleared: bool = False
    ) -> Served:
        line = _AccessLine(head, self._origin(head, sink.peer))
        line.read(body or b"")
        logged = cast("ResponseSink", _LoggedSink(sink, line))
        served = self._endpoint.respond(head, body, logged, cleared=cleared)
        return line.answered(served) if isinstance(served, HttpResponse) else served


class _LoggedWebSockets:
    """The same for WebSockets; each has a line when it is opened."""

    def __init__(self, websockets: WebSockets, origin: Callable[[RequestHead, Peer], Peer]) -> None:
        self._websockets = websockets
        self._origin = origin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._websockets, name)

    async def open(
        self, head: RequestHead, peer: Peer, offered: Sequence[str]
    ) -> HttpResponse | DuplexChannel:
        line = _AccessLine(head, self._origin(head, peer))
        opened = await self._websockets.open(head, peer, offered)
        if isinstance(opened, HttpResponse):
            return line.answered(opened)
        line.write(101, "WebSocket")
        return opened


class _AccessLine:
    """The line about one request.

    Args:
        head: The request.
        peer: From where it came.
    """

    __slots__ = ("_began", "_body", "_context", "_head", "_method", "_peer")

    def __init__(self, head: RequestHead, peer: Peer) -> None:
        self._head = head
        self._peer = peer
        self._method = head.headers.get(b"mcp-method")
        self._body = b""
        self._context: RequestContext | None = None
        self._began = time.perf_counter()

    def read(self, body: bytes) -> None:
        """Take note of the body, where the head does not say the method."""
        if self._method is None:
            self._body = body

    def know(self, context: RequestContext) -> None:
        """Take note of the request that the HTTP request carries."""
        self._context = context

    def answered(self, answer: HttpResponse) -> HttpResponse:
        """Write the line of a whole answer, and return that. Of a reply it is known what it answers."""
        if answer.context is not None:
            self.know(answer.context)
        self.write(answer.status, f"{len(answer.body)} bytes")
        return answer

    def write(self, status: int, what: str) -> None:
        """Write the line.

        Args:
            status: The HTTP status.
            what: What the answer is.
        """
        head = self._head
        _log.info(
            "%s %s %s %s: %d, %s after %.1f ms",
            self._peer,
            sanitize_for_log(head.verb),
            sanitize_for_log(head.path),
            self._label(),
            status,
            what,
            (time.perf_counter() - self._began) * 1000,
        )
        self._body = b""  # the answer may take long

    def _label(self) -> str:
        """Return the method, with the name of the tool or prompt, and the number by which a watch knows the request."""
        context = self._context
        if context is None:
            method, name = self._find_method()
        else:
            method, name = context.request.method, context.routing.name
        label = sanitize_for_log(method or "-")
        if name is not None and method in _NAMED:
            label += f" {sanitize_for_log(name)}"
        return label if context is None or context.life is None else f"{label} #{context.life.number}"

    def _find_method(self) -> tuple[str | None, str | None]:
        """Read method and name in the head, or in the body once more, where nobody else says them."""
        if self._method is not None:
            with suppress(ValueError):
                name = self._head.headers.get(b"mcp-name")
                return self._method, None if name is None else decode_mirrored(name)
            return self._method, None
        if not self._body:
            return None, None
        try:
            message = decode(self._body)
            if isinstance(message, JsonRpcRequest):
                return message.method, read_routing(message.params).name
        except (Undecodable, ProtocolError):
            return None, None
        return None if isinstance(message, JsonRpcResponse) else message.method, None


class _LoggedSink:
    """The sink of a request that has a line in the log."""

    __slots__ = ("_line", "_sink", "peer")

    def __init__(self, sink: ResponseSink, line: _AccessLine) -> None:
        self._sink = sink
        self._line = line
        self.peer = sink.peer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    async def read_body(self, limit: int) -> bytes | None:
        body = await self._sink.read_body(limit)
        self._line.read(body or b"")
        return body

    def open(self, opened: StreamedResponse) -> None:
        context = getattr(opened.stream.maker, "context", None)
        if context is not None:
            self._line.know(context)
        self._sink.open(_LoggedOpened(opened.stream, opened.writer, opened.form, opened.revision, self._line))

    def respond_in_task(self, answer: Callable[[TaskResponse], Awaitable[None]]) -> None:
        self._sink.respond_in_task(
            lambda http: answer(cast("TaskResponse", _LoggedRequest(http, self._line)))
        )

    def finish(self, answer: HttpResponse) -> None:
        self._sink.finish(self._line.answered(answer))

    def fail(self, failure: BaseException) -> None:
        self._sink.fail(failure)
        self._line.write(500, "a failure")


class _LoggedOpened(StreamedResponse, frozen=True):
    """A stream whose request has a line in the log."""

    line: _AccessLine

    def render(self, *, started: bool = False) -> ResponseEncoder:
        return _LoggedRendering(self, self.line, started=started)


class _LoggedRendering(ResponseEncoder):
    __slots__ = ("_line",)

    def __init__(self, opened: StreamedResponse, line: _AccessLine, *, started: bool) -> None:
        super().__init__(opened, started=started)
        self._line = line

    def begin(self, batch: list[OutboundMessage] | None) -> HttpResponse | HeaderList | None:
        begun = super().begin(batch)
        if not isinstance(begun, HttpResponse):
            if begun is not None:
                self._line.write(200, _STREAM)
        elif batch is None:
            self._line.answered(begun)
        return begun

    def whole(self, batch: list[OutboundMessage]) -> HttpResponse:
        return self._line.answered(super().whole(batch))


class _LoggedRequest:
    """A request that has a line in the log, and is answered by who serves it."""

    __slots__ = ("_http", "_line", "head", "peer")

    def __init__(self, http: TaskResponse, line: _AccessLine) -> None:
        self._http = http
        self._line = line
        self.head = http.head
        self.peer = http.peer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._http, name)

    async def answer(self, reply: HttpResponse) -> None:
        await self._http.answer(self._line.answered(reply))

    async def start_stream(self, headers: HeaderList) -> None:
        self._line.write(200, _STREAM)
        await self._http.start_stream(headers)
