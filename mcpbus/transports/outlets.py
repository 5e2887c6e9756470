"""How a request over HTTP looks to who serves it: what is read of it, and the outlet through which it is answered."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from mcpbus.core.receipt import Fate
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.transports.answers import HeaderList
from mcpbus.transports.rendering import StreamedResponse


class SettleableResponse(Protocol):
    """A whole answer in the books: those of this process, which has a receipt for it, or of the one that gave it."""

    def settle(self, fate: Fate, /) -> None:
        """Say what has become of it."""


class KeepAliveHandler(Protocol):
    """Who is to say something to a client, as whoever carries that sees it."""

    def keep_alive(self) -> None:
        """Say anything: nothing was said for as long as may be. No schedule point."""

    def cancel(self) -> None:
        """Take note that the client has left, or the connection is lost. No schedule point."""


class CoalescedWriter(Protocol):
    """What has something to write, and may have more before it is called."""

    def write_now(self) -> None:
        """Write it, or begin to, if it is not written yet. No schedule point."""

    def lose(self) -> None:
        """End what it is written for, in the middle of it. Harmless once that was done. No schedule point."""


class ResponseSink(Protocol):
    """Who is to write the answer of one request."""

    @property
    def gathers(self) -> bool:
        """Whether what is said before the answer may wait for it: a turn is under way that is about to end, and then it is written."""

    @property
    def scope(self) -> trio.CancelScope | None:
        """Encloses the task that stays with the request's handler if that waits, see `mcpbus_actors.EagerTask`.

        With None, a handler that may wait has a task of its own.
        """

    def open(self, opened: StreamedResponse) -> None:
        """Write what comes on a stream, from now on. No schedule point."""

    def on_handler_waiting(self, request: KeepAliveHandler, quiet: float) -> "DeferredResponseSink | None":
        """Take note that the handler waits, and nothing was said. No schedule point.

        Args:
            request: The request, which is to be told after a while, to begin its response without a word, and if the client leaves.
            quiet: How many seconds that while is.

        Returns:
            Who writes the answer if it comes whole; None where it is to come on a stream, which is opened now.
        """


class InlineResponseSink(ResponseSink, Protocol):
    """An outlet that writes whole answers without waiting, too, and hears of what goes wrong.

    Attributes:
        peer: From where the request came.
    """

    peer: Peer

    @property
    def scope(self) -> trio.CancelScope:
        """See `ResponseSink`."""

    def finish(self, answer: HttpResponse) -> None:
        """Write a whole answer. No schedule point."""

    def fail(self, failure: BaseException) -> None:
        """Report a failure of the application's, and answer for it. No schedule point."""

    def respond_in_task(self, answer: "Callable[[HttpRequest], Awaitable[None]]") -> None:
        """Have a task answer the request: it is an `HttpRequest`, too, whose body has been read. No schedule point."""


class DeferredResponseSink(InlineResponseSink, Protocol):
    """One that writes the answer of a request whose handler waits, if that comes whole."""

    def flush_last(self, writer: CoalescedWriter) -> None:
        """Have something else written once no turn is due any more, or in the scheduler's next one. No schedule point."""


class InlineRunner(Protocol):
    """The task of a connection, which runs handlers itself as long as they do not wait for anything."""

    @property
    def scope(self) -> trio.CancelScope:
        """Encloses what the task does for one request after the other."""

    def leave(self, answer: Callable[[], Awaitable[None]]) -> None:
        """Stay with a handler that waits: another task is to answer the request, and then go on with the connection."""


class HttpRequest(Protocol):
    """One HTTP request, as a shell hands it in.

    Attributes:
        head: The request before its body.
        peer: From where it came.
    """

    head: RequestHead
    peer: Peer

    @property
    def bounds_writes(self) -> bool:
        """Whether a write ends by itself where the client takes less than 16 KiB within `Limits.write_deadline`.

        A write that does not is bounded as a whole by its caller.
        """

    @property
    def head_validated(self) -> bool:
        """Whether it is known that `Endpoint.clears` is true of its head."""

    @property
    def host(self) -> InlineRunner | None:
        """Who runs its handler; None where each request has a task of its own, which runs it and ends with the answer."""

    async def read_body(self, limit: int) -> bytes | None:
        """Read the whole body; None if it is longer than `limit` bytes.

        Raises:
            trio.BrokenResourceError: The client went away.
            Overloaded: Too much is kept in memory, and in this body, which is unfinished, the most.
        """

    async def answer(self, reply: HttpResponse) -> None:
        """Send a whole response. May return, having done nothing, where the client has gone.

        Raises:
            trio.BrokenResourceError: The client has gone, or accepted nothing for the write deadline.
        """

    async def start_stream(self, headers: HeaderList) -> None:
        """Begin a response of status 200 that `write` goes on with."""

    async def write(self, data: bytes, *, more: bool) -> None:
        """Write a part of the response, the last one unless `more`."""

    def give_up(self) -> None:
        """End a write that is under way and shielded from cancellation, and with it the connection: its task is cancelled, to make room."""

    async def disconnected(self) -> None:
        """Return when the client has gone; called after the body was read."""
