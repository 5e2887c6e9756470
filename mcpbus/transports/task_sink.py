"""The place to answer a request that has a trio task of its own, which writes the response once that is due."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, Protocol

import trio

from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.transports.deferred import Served
from mcpbus.transports.entered import RecordedResponse
from mcpbus.transports.rendering import StreamedResponse
from mcpbus.transports.sinks import CoalescedWriter, HttpRequest, KeepAliveHandler, ResponseSink


class Respond(Protocol):
    """`Endpoint.respond`."""

    def __call__(
        self, head: RequestHead, body: bytes | None, sink: ResponseSink, /, *, cleared: bool = False
    ) -> Served:
        """Serve a request."""


class ResponseWriting(Protocol):
    """The parts of `Endpoint` that write responses."""

    def entered(
        self, answer: HttpResponse, give_up: Callable[[], object] | None = None, /
    ) -> RecordedResponse:
        """Count a whole response while it is written, and enter it in the ledger."""

    async def stream(self, opened: StreamedResponse, http: HttpRequest, /) -> None:
        """Write the messages of a stream until it or the connection ends."""


class HttpTaskSink:
    """A `ResponseSink` whose response is written by the task that serves the request; its handler has another one.

    Args:
        endpoint: Writes responses.
        http: The request.
    """

    __slots__ = ("_endpoint", "_failure", "_http", "_write", "peer")

    gathers: ClassVar[bool] = False
    scope: ClassVar[None] = None

    def __init__(self, endpoint: ResponseWriting, http: HttpRequest) -> None:
        self._endpoint = endpoint
        self._http = http
        self._write: Callable[[HttpRequest], Awaitable[None]] | None = None
        self._failure: BaseException | None = None
        self.peer: Peer = http.peer

    async def serve(self, respond: Respond) -> None:
        """Serve the request, and write its response.

        Args:
            respond: `Endpoint.respond`.

        Raises:
            trio.BrokenResourceError: The client went away.
            Exception: A function of the author's failed, or `respond` did.
        """
        http = self._http
        served = respond(http.head, None, self, cleared=http.head_validated)
        if isinstance(served, HttpResponse):
            self.finish(served)
        elif served is not None:
            await served.finish()
        del served  # a stream lasts, and need not hold the text of its request
        if self._failure is not None:
            raise self._failure
        if self._write is not None:
            await self._write(http)

    async def read_body(self, limit: int) -> bytes | None:
        """Read the whole body."""
        return await self._http.read_body(limit)

    def finish(self, answer: HttpResponse) -> None:
        """Write a whole response once the request is served."""
        self._write = partial(write_whole, self._endpoint, answer)

    def open(self, opened: StreamedResponse) -> None:
        """Write the messages of a stream once the request is served."""
        self._write = partial(self._endpoint.stream, opened)

    def on_handler_waiting(self, _request: KeepAliveHandler, _quiet: float) -> bool:
        """Ask for a stream: the task writes that."""
        return False

    def flush_last(self, writer: CoalescedWriter) -> None:
        """Write something else now: no turn is under way."""
        writer.write_now()

    def respond_in_task(self, answer: Callable[[HttpRequest], Awaitable[None]]) -> None:
        """Answer the request once it is served."""
        self._write = answer

    def fail(self, failure: BaseException) -> None:
        """Have `serve` raise a failure."""
        self._failure = failure

    def lose(self) -> None:
        """Have `serve` raise that the client went away."""
        self._failure = trio.BrokenResourceError("the body of the request cannot be read")


async def write_whole(endpoint: ResponseWriting, answer: HttpResponse, http: HttpRequest) -> None:
    """Write a whole response, which is counted and entered in the ledger until it is written."""
    with endpoint.entered(answer, http.give_up):
        await http.answer(answer)
