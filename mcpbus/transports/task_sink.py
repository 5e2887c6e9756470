"""The place to answer a request that has a trio task of its own, which writes the response once that is due."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, Protocol

import trio

from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.transports.deferred import Served
from mcpbus.transports.ledger_responses import RecordedResponse
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import CoalescedWriter, KeepAliveHandler, ResponseSink, TaskResponse
from mcpbus.transports.responses import HeaderList


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

    async def stream(self, opened: StreamedResponse, http: TaskResponse, /) -> None:
        """Write the messages of a stream until it or the connection ends."""


class HttpTaskSink(ABC):
    """A `TaskResponse` with a task of its own, and its `ResponseSink`: its task writes the response, and its handler has another one.

    Args:
        endpoint: Writes responses.
        head: The request before its body.
        peer: The other end of the connection.
        cleared: Whether the head is known to be in order; see `Endpoint.respond`.
        bounds_writes: See `TaskResponse`.
    """

    __slots__ = (
        "_cleared",
        "_endpoint",
        "_failure",
        "_whole",
        "_write",
        "bounds_writes",
        "head",
        "peer",
    )

    gathers: ClassVar[bool] = False
    scope: ClassVar[None] = None

    def __init__(
        self,
        endpoint: ResponseWriting,
        head: RequestHead,
        peer: Peer,
        *,
        cleared: bool = False,
        bounds_writes: bool = False,
    ) -> None:
        self._endpoint = endpoint
        self.head = head
        self.peer = peer
        self._cleared = cleared
        self.bounds_writes = bounds_writes
        self._whole: HttpResponse | None = None
        self._write: Callable[[TaskResponse], Awaitable[None]] | None = None
        self._failure: BaseException | None = None

    async def serve(self, respond: Respond, body: bytes | None) -> None:
        """Serve the request, and write its response.

        Args:
            respond: `Endpoint.respond`.
            body: The whole body; None if `read_body` reads it.

        Raises:
            trio.BrokenResourceError: The client went away.
            Exception: A function of the author's failed, or `respond` did.
        """
        served = respond(self.head, body, self, cleared=self._cleared)
        del body  # a stream lasts, and need not hold the text of its request
        if isinstance(served, HttpResponse):
            whole: HttpResponse | None = served
        else:
            if served is not None:
                await served.finish()
            del served
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            whole = self._whole
        if whole is not None:
            with self._endpoint.entered(whole, self.give_up):
                await self.answer(whole)
        elif self._write is not None:
            await self._write(self)

    @abstractmethod
    async def read_body(self, limit: int) -> bytes | None:
        """Read the whole body; see `ResponseSink`."""

    @abstractmethod
    async def answer(self, reply: HttpResponse) -> None:
        """Send a whole response; see `TaskResponse`."""

    @abstractmethod
    async def start_stream(self, headers: HeaderList) -> None:
        """Begin a response in pieces; see `TaskResponse`."""

    @abstractmethod
    async def write(self, data: bytes, *, more: bool) -> None:
        """Write a piece of the response; see `TaskResponse`."""

    @abstractmethod
    def give_up(self) -> None:
        """End a write that is shielded from cancellation; see `TaskResponse`."""

    @abstractmethod
    async def disconnected(self) -> None:
        """Return when the client has gone; see `TaskResponse`."""

    def finish(self, answer: HttpResponse) -> None:
        """Write a whole response once the request is served."""
        self._whole = answer

    def open(self, opened: StreamedResponse) -> None:
        """Write the messages of a stream once the request is served."""
        self._write = partial(self._endpoint.stream, opened)

    def on_handler_waiting(self, _request: KeepAliveHandler, _quiet: float) -> bool:
        """Ask for a stream: the task writes that."""
        return False

    def flush_last(self, writer: CoalescedWriter) -> None:
        """Write something else now: no turn is under way."""
        writer.write_now()

    def respond_in_task(self, answer: Callable[[TaskResponse], Awaitable[None]]) -> None:
        """Answer the request once it is served."""
        self._write = answer

    def fail(self, failure: BaseException) -> None:
        """Have `serve` raise a failure."""
        self._failure = failure

    def lose(self) -> None:
        """Have `serve` raise that the client went away."""
        self._failure = trio.BrokenResourceError("the body of the request cannot be read")


async def write_whole(endpoint: ResponseWriting, answer: HttpResponse, http: TaskResponse) -> None:
    """Write a whole response, which is counted and entered in the ledger until it is written."""
    with endpoint.entered(answer, http.give_up):
        await http.answer(answer)
