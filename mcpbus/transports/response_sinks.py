"""A request over HTTP as the endpoint sees it: the place to answer it, and the writing end of its response for a task."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from mcpbus.core.receipt import Fate
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.responses import HeaderList


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
    """The place to answer one request, and the rest of its body if that still arrives.

    Attributes:
        peer: The other end of the connection, which may be a proxy.
    """

    peer: Peer

    @property
    def gathers(self) -> bool:
        """Whether notifications before the response may wait for it: a turn is under way that ends soon, and then it is written."""

    @property
    def scope(self) -> trio.CancelScope | None:
        """The scope of the task that stays with a handler that waits, see `mcpbus_actors.EagerTask`.

        With None, each handler that may wait has a task of its own.
        """

    async def read_body(self, limit: int) -> bytes | None:
        """Read the whole body; None if it is longer than `limit` bytes.

        Raises:
            trio.BrokenResourceError: The client went away, or sends what is no body, or too slowly. `lose` answers that.
            ServerOverloaded: Too much is held in memory, and in this unfinished body the most.
        """

    def finish(self, answer: HttpResponse) -> None:
        """Write a whole response. No schedule point."""

    def open(self, opened: StreamedResponse) -> None:
        """Write the messages of a stream, from now on. No schedule point."""

    def on_handler_waiting(self, request: KeepAliveHandler, quiet: float) -> bool:
        """Take note that the handler waits and that nothing was emitted. No schedule point.

        Args:
            request: The request. It is notified after a while, to begin its response without a message, and if the client leaves.
            quiet: That while, in seconds.

        Returns:
            Whether `finish` may be called later. Otherwise the response comes on a stream, which is opened now.
        """

    def flush_last(self, writer: "CoalescedWriter") -> None:
        """Write something else once no turn is due any more, or in the scheduler's next one. No schedule point."""

    def respond_in_task(self, answer: "Callable[[TaskResponse], Awaitable[None]]") -> None:
        """Answer the request in a task. No schedule point."""

    def fail(self, failure: BaseException) -> None:
        """Report a failure of the application's, and answer for it. No schedule point."""

    def lose(self) -> None:
        """End the request: its body cannot be read. No schedule point."""


class TaskResponse(Protocol):
    """The response of one HTTP request, as the task sees it that writes it.

    Attributes:
        head: The request before its body.
        peer: The other end of the connection, which may be a proxy.
    """

    head: RequestHead
    peer: Peer

    @property
    def bounds_writes(self) -> bool:
        """Whether a write ends by itself where the client takes less than 16 KiB within `Limits.write_deadline`.

        A write that does not is bounded as a whole by its caller.
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
