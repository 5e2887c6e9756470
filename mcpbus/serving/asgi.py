"""The ASGI 3.0 types that serving speaks, and what it asks of an application beyond them."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, runtime_checkable

from mcpbus.core.budget import MemoryBudget
from mcpbus.core.limits import Limits
from mcpbus.core.reached_limits import LimitMonitor
from mcpbus.core.receipt import Fate
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.transports.deferred import Served
from mcpbus.transports.entered import RecordedResponse
from mcpbus.transports.rendering import StreamedResponse
from mcpbus.transports.sinks import HttpRequest, ResponseSink, SettleableResponse
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

    async def stream(self, opened: StreamedResponse, http: HttpRequest, /) -> None:
        """Write the messages of a stream until it or the connection ends."""


@runtime_checkable
class DirectApp(Protocol):
    """An application that need not be called through ASGI, at least for some paths.

    One that mounts an endpoint beside something else may have a `direct` that asks the mounted application's.
    """

    def direct(self, path: str, /) -> DirectEndpoint | None:
        """Who serves HTTP requests of this path; None: the application does, through ASGI."""
