"""The types of ASGI 3.0, what the server asks of an application beyond them, and the call of an application for one HTTP request."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import unquote

import attrs
import trio

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.limits import Limits
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.core.receipt import Fate
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.serving.deadlines import DeadlineStream
from mcpbus.serving.response_writer import ContentLengthCheck
from mcpbus.transports.deferred import Served
from mcpbus.transports.ledger_responses import RecordedResponse
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import ResponseSink, SettleableResponse, TaskResponse
from mcpbus.transports.responses import HeaderList
from mcpbus.transports.websocket import WebSockets

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


@runtime_checkable
class Drainable(Protocol):
    """An application that can be told of a shutdown before it is cancelled."""

    async def drain(self, seconds: float, /) -> None:
        """Refuse new work, end open streams, let requests finish for at most `seconds`, cancel the rest."""


@runtime_checkable
class Announcing(Protocol):
    """An application that tells probes that it is going to be drained, while idle connections still have a moment."""

    def announce_drain(self) -> None:
        """Tell whoever asks for its health that it ends; the rest goes on, and `drain` follows."""


@runtime_checkable
class Noting(Protocol):
    """An application that keeps a record of limits that were reached."""

    @property
    def reached(self) -> LimitMonitor:
        """The record."""


class DirectEndpoint(Protocol):
    """What serves HTTP requests without ASGI in between; see `mcpbus.transports.Endpoint`.

    What it says of a head, it says of all that have the same path and verb, and the same fields among `JUDGED`, as long as
    their bodies are no longer than `max_body_bytes`.
    """

    @property
    def limits(self) -> Limits:
        """How long an answer may be quiet, and its client slow."""

    @property
    def websockets(self) -> WebSockets | None:
        """Who opens WebSockets; None: the application does, through ASGI."""

    @property
    def max_body_bytes(self) -> int:
        """The longest body of a request that is served."""

    def cors_headers(self, head: RequestHead, /) -> list[tuple[bytes, bytes]]:
        """The fields that are added to the answer, whatever it is, today and whenever this head comes again."""

    def is_head_valid(self, head: RequestHead, /) -> bool:
        """Whether everything is in order that is judged by the head alone, today and whenever it comes again."""

    def respond(
        self, head: RequestHead, body: bytes | None, sink: ResponseSink, /, *, cleared: bool = False
    ) -> Served:
        """Serve a request without waiting; with None its body still arrives."""

    @property
    def budget(self) -> MemoryBudget:
        """Where it is counted what waits for clients."""

    def entered(
        self, answer: HttpResponse, give_up: Callable[[], object] | None = None, /
    ) -> RecordedResponse:
        """Count an answer while it is written, and enter it in the books; it may be given up meanwhile."""

    def record_response(self, answer: HttpResponse, /) -> SettleableResponse | None:
        """Enter an answer of `respond` in the books, for whoever writes it to settle; None for one that has no place there."""

    def record(self, answer: HttpResponse, fate: Fate, /) -> None:
        """Enter an answer of `respond` together with what has become of it, where nobody had to wait for that."""

    async def stream(self, opened: StreamedResponse, http: TaskResponse, /) -> None:
        """Write the messages of a stream until it or the connection ends."""


@runtime_checkable
class DirectApp(Protocol):
    """An application that need not be called through ASGI, at least for some paths.

    One that mounts an endpoint beside something else may have a `direct` that asks the mounted application's.
    """

    def direct(self, path: str, /) -> DirectEndpoint | None:
        """Who serves HTTP requests of this path; None: the application does, through ASGI."""


_OF_THE_SERVER: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"date"}
)
"""Fields that say how an answer is sent, and when: not for an application to say."""

Address = tuple[str, int] | None


@attrs.frozen
class RequestLine:
    """What an application is told of a request before its body.

    Attributes:
        version: The version of HTTP.
        method: The HTTP method.
        target: What was asked for, as it came.
        fields: The header fields one by one, their names in lower case.
    """

    version: str
    method: str
    target: bytes
    fields: list[tuple[bytes, bytes]]


@attrs.frozen
class ConnectionScope:
    """What the scopes of all requests of one connection have in common.

    Attributes:
        client: The client's address.
        server: Our own.
        secure: Whether the connection is encrypted.
        state: What the application's lifespan left.
    """

    client: Address
    server: Address
    secure: bool
    state: dict[str, object]

    def describe(self, line: RequestLine) -> Scope:
        """Describe a request, as ASGI has it."""
        path, _, query = line.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": line.version,
            "method": line.method,
            "scheme": "https" if self.secure else "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": line.fields,
            "client": self.client,
            "server": self.server,
            "state": dict(self.state),
            "extensions": {},
        }


def scope_of(stream: trio.abc.Stream, state: dict[str, object]) -> ConnectionScope:
    """Describe a connection."""
    client = server = None
    secure = False
    if isinstance(stream, DeadlineStream):
        secure = stream.secure
        with suppress(OSError):
            client, server = _address(stream.socket.getpeername()), _address(stream.socket.getsockname())
    return ConnectionScope(client, server, secure, state)


def _address(address: Any) -> Address:
    return (address[0], address[1]) if isinstance(address, tuple) else None


def for_the_wire(fields: Iterable[Sequence[bytes]]) -> HeaderList:
    """The fields of an answer as an application gives them, without those that are the server's to say."""
    lowered = [(bytes(name).lower(), bytes(value)) for name, value in fields]
    return [field for field in lowered if field[0] not in _OF_THE_SERVER]


class HttpExchange(Protocol):
    """One HTTP request and its answer, as whoever calls an application sees it."""

    @property
    def line(self) -> RequestLine:
        """What the application is told of the request."""

    @property
    def over(self) -> bool:
        """Whether nothing more can be said: it was said whole, or the client has gone."""

    async def read(self) -> tuple[bytes, bool]:
        """Wait for more of the body; returns what has come, and whether that was the last of it. Nothing once the client has gone."""

    async def disconnected(self) -> None:
        """Wait until the client has gone."""

    def begin(self, status: int, fields: HeaderList, /, *, measured: bool) -> None:
        """Say the head of the answer, which is written together with what is said in this turn of the scheduler.

        Args:
            status: The HTTP status.
            fields: Its header fields.
            measured: Whether they say where the body ends.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """

    async def say(self, data: bytes, /, *, more: bool) -> None:
        """Say a piece of the body, and wait until it is written, or cannot be."""


class AsgiCall:
    """Calls an application for a request.

    Args:
        app: The application.
        exchange: The request.
        connection: What is the same for all requests of its connection.
    """

    def __init__(self, app: AsgiApp, exchange: HttpExchange, connection: ConnectionScope) -> None:
        self._app = app
        self._exchange = exchange
        self._connection = connection
        self._method = ""
        self._length: ContentLengthCheck | None = None  # once the answer has begun
        self._read = False
        self._receiving = trio.Lock()
        self._waiting = trio.CancelScope()

    async def run(self) -> None:
        """Call it.

        Raises:
            RuntimeError: It has not answered.
        """
        line = self._exchange.line
        self._method = line.method
        await self._app(self._connection.describe(line), self._receive, self._send)
        if self._length is None and not self._exchange.over:
            raise RuntimeError("the application returned without an answer")

    async def _receive(self) -> Message:
        exchange = self._exchange
        async with self._receiving:
            if not self._read:
                data, ended = await exchange.read()
                if data or ended:
                    self._read = ended
                    return {"type": "http.request", "body": data, "more_body": not ended}
            with trio.CancelScope() as self._waiting:
                if not exchange.over:
                    await exchange.disconnected()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        # What is said changes the connection's state, so this is the place to be cancelled: before.
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._exchange.over:
            await trio.lowlevel.checkpoint()  # nobody hears of it, and a loop would never end
        elif message["type"] == "http.response.start":
            if self._length is not None:
                raise RuntimeError("a response has one head")
            status, fields = message["status"], for_the_wire(message.get("headers", ()))
            length = ContentLengthCheck(self._method, status, fields)
            self._exchange.begin(status, fields, measured=length.measured)
            self._length = length
        elif message["type"] == "http.response.body":
            if self._length is None:
                raise RuntimeError("a response begins with http.response.start")
            more = message.get("more_body", False)
            await self._exchange.say(self._length.take(message.get("body", b""), more=more), more=more)
            if not more:
                self._waiting.cancel()
