"""How one HTTP request is answered from a stream: the form chosen late, each batch in one write."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import trio

from mcpbus.core.limits import Limits
from mcpbus.core.outbox import OutboundMessage, data_of
from mcpbus.core.receipt import Fate
from mcpbus.core.stream import Stream
from mcpbus.core.writer import Writer
from mcpbus.protocol.http.messages import Answer, Head
from mcpbus.protocol.http.sse import (
    COMMENT,
    encode_event,
    encode_events,
    encode_message,
    encode_messages,
    encode_numbered,
)
from mcpbus.protocol.owners import Peer
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import Kind
from mcpbus.transports import answers
from mcpbus.transports.answers import HeaderList, ResponseFormat


class Opened(msgspec.Struct, frozen=True):
    """An answer that comes on a stream.

    Attributes:
        stream: The stream.
        writer: Its writing end, which has to be used, or left.
        form: What form the answer may take.
        revision: What governs the request; None for a GET.
    """

    stream: Stream
    writer: Writer
    form: ResponseFormat
    revision: Revision | None

    def render(self, *, started: bool = False) -> "Rendering":
        """Begin to make the answer of what the stream says; see `Rendering`."""
        return Rendering(self, started=started)


class Entry(Protocol):
    """A whole answer in the books: those of this process, which has a receipt for it, or of the one that gave it."""

    def settle(self, fate: Fate, /) -> None:
        """Say what has become of it."""


class Speaker(Protocol):
    """Who is to say something to a client, as whoever carries that sees it."""

    def keep_alive(self) -> None:
        """Say anything: nothing was said for as long as may be. No schedule point."""

    def cancel(self) -> None:
        """Take note that the client has left, or the connection is lost. No schedule point."""


class LateWriter(Protocol):
    """What has something to write, and may have more before it is called."""

    def write_now(self) -> None:
        """Write it, or begin to. No schedule point."""

    def lose(self) -> None:
        """End what it is written for. No schedule point."""


class Outlet(Protocol):
    """Who is to write the answer of one request."""

    @property
    def gathers(self) -> bool:
        """Whether what is said before the answer may wait for it: a turn is under way that is about to end, and then it is written."""

    @property
    def scope(self) -> trio.CancelScope | None:
        """Encloses the task that stays with the request's handler if that waits, see `mcpbus_actors.EagerTask`.

        With None, a handler that may wait has a task of its own.
        """

    def open(self, opened: Opened) -> None:
        """Write what comes on a stream, from now on. No schedule point."""

    def wait(self, request: Speaker, quiet: float) -> "WaitingOutlet | None":
        """Take note that the handler waits, and nothing was said. No schedule point.

        Args:
            request: The request, which is to be told after a while, to begin its response without a word, and if the client leaves.
            quiet: How many seconds that while is.

        Returns:
            Who writes the answer if it comes whole; None where it is to come on a stream, which is opened now.
        """


class ReadyOutlet(Outlet, Protocol):
    """An outlet that writes whole answers without waiting, too, and hears of what goes wrong.

    Attributes:
        peer: From where the request came.
    """

    peer: Peer

    @property
    def scope(self) -> trio.CancelScope:
        """See `Outlet`."""

    def finish(self, answer: Answer) -> None:
        """Write a whole answer. No schedule point."""

    def fail(self, failure: BaseException) -> None:
        """Report a failure of the application's, and answer for it. No schedule point."""

    def answer_apart(self, answer: "Callable[[HttpRequest], Awaitable[None]]") -> None:
        """Have a task answer the request: it is an `HttpRequest`, too, whose body has been read. No schedule point."""


class WaitingOutlet(ReadyOutlet, Protocol):
    """One that writes the answer of a request whose handler waits, if that comes whole."""

    def flush_last(self, writer: LateWriter) -> None:
        """Have something else written once no turn is due any more, or in the scheduler's next one. No schedule point."""


class Host(Protocol):
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

    head: Head
    peer: Peer

    @property
    def cleared(self) -> bool:
        """Whether it is known that `Endpoint.clears` is true of its head."""

    @property
    def host(self) -> Host | None:
        """Who runs its handler; None where each request has a task of its own, which runs it and ends with the answer."""

    async def read_body(self, limit: int) -> bytes | None:
        """Read the whole body; None if it is longer than `limit` bytes.

        Raises:
            trio.BrokenResourceError: The client went away.
            Overloaded: Too much is kept in memory, and in this body, which is unfinished, the most.
        """

    async def answer(self, reply: Answer) -> None:
        """Send a whole response. May return, having done nothing, where the client has gone.

        Raises:
            trio.BrokenResourceError: The client has gone, or accepted nothing for the write deadline.
        """

    async def start_stream(self, headers: HeaderList) -> None:
        """Begin a response of status 200 that `write` goes on with."""

    async def write(self, data: bytes, *, more: bool) -> None:
        """Write a part of the response, the last one unless `more`."""

    async def disconnected(self) -> None:
        """Return when the client has gone; called after the body was read."""


class Rendering:
    """What an answer looks like, as far as it has got: batches in; a whole answer, or a head and pieces, out.

    Its form is chosen when its first bytes are due.

    Args:
        opened: What is written.
        started: Whether the response has begun as an SSE stream.

    Attributes:
        encode: Makes an event of what the stream says.
        started: Whether the response has begun.
        is_array: Whether replies that were not held back go out as a JSON array in pieces: their client takes no stream of events.
    """

    __slots__ = (
        "_encode_all",
        "_form",
        "_leaves",
        "_revision",
        "_separator",
        "_stream",
        "encode",
        "is_array",
        "started",
    )

    encode: Callable[[bytes], bytes]

    def __init__(self, opened: Opened, *, started: bool = False) -> None:
        named = bool(opened.form.address)
        self.encode = encode_message if named else encode_event
        self._encode_all = encode_messages if named else encode_events
        self._stream = opened.stream
        self._form = opened.form
        self._revision = opened.revision
        self._separator = b"["
        self._leaves = False
        self.started = started
        self.is_array = opened.form.array and not opened.form.sse

    def is_whole(self, batch: list[OutboundMessage]) -> bool:
        """Tell whether the answer can be JSON: nothing was said before the reply."""
        if not self._form.json or self.started:
            return False
        if self._form.array:
            return not self._stream.owed and _are_replies(batch)
        return len(batch) == 1 and batch[0].final

    def whole(self, batch: list[OutboundMessage]) -> Answer:
        """The whole answer, in JSON."""
        if self._form.array:
            return answers.whole_batch(batch)
        return answers.whole_reply(batch[0], self._revision)

    def begin(self, batch: list[OutboundMessage] | None) -> Answer | HeaderList | None:
        """Begin the response with its first batch, or with its end if there is none.

        Returns:
            The whole answer; or the head of one that comes in pieces, the first of which `piece` makes of the batch. None if it
            has begun already.
        """
        if self.started:
            return None
        if batch is None:
            return answers.unanswered(self._stream)
        if self.is_whole(batch):
            return self.whole(batch)
        self.started = True
        return answers.JSON_HEADERS if self.is_array else answers.stream_headers(batch)

    def prime(self, retry: float | None, *, begins: bool) -> bytes:
        """The event that comes before what is said, if there is one.

        It tells a client where to POST; or from where to come back, and after how many seconds if it is to go: then no more is said
        here.

        Args:
            retry: How many, if it is.
            begins: Whether the response has just begun.
        """
        if begins and self._form.address:
            return encode_event(self._form.address, event="endpoint")
        log = self._stream.log
        if log is None or not (retry is not None or (begins and log.primes)):
            return b""
        self._leaves = retry is not None
        return encode_event(b"", id=log.offer(), retry=None if retry is None else round(retry * 1000))

    def piece(
        self, batch: list[OutboundMessage] | None, before: bytes = b"", first: int | None = None
    ) -> tuple[bytes, bool]:
        """The next piece of a response that has begun, and whether there may be more.

        Args:
            batch: What it says; a comment if that is nothing, and the end if there is none.
            before: An event that comes before it.
            first: The number of its first event, if they are kept.
        """
        if batch is None:
            return self._end(), False
        more = not (self._leaves or (batch and batch[-1].final))
        said = data_of(batch)
        if self.is_array:  # which is JSON like any other at its end
            elements, self._separator = self._separator + b",".join(said), b","
            return elements if more else elements + b"]", more
        log = self._stream.log
        if first is None or log is None:
            events = self._encode_all(said)
        else:
            events = encode_numbered(said, log.name, first)
        return before + events or COMMENT, more

    def _end(self) -> bytes:
        """The end of a response that has begun, if nothing was the last that is said."""
        if self.is_array:
            return b"]"
        retry = self._stream.retry
        return b"" if retry is None else encode_event(b"", retry=round(retry * 1000))

    @property
    def is_early(self) -> bool:
        """Whether the response is to begin although there is nothing to say yet."""
        return self._form.early and not self.started

    @property
    def is_patient(self) -> bool:
        """Whether it must not begin for the sake of keeping the connection alive."""
        return self.is_array or (not self.started and (self._form.patient or not self._form.sse))

    @property
    def may_become_array(self) -> bool:
        """Whether replies may be held back, to become a JSON array with those that are still to come: not if they are long."""
        if not self._form.array or not self._form.json or self.started:
            return False
        return self._stream.owed > 0 and not self._stream.laden


class ResponseWriter:
    """Writes the response of one request, in its own task.

    Args:
        http: The request.
        opened: What is written.
        started: Whether the response has begun as an SSE stream.
    """

    def __init__(self, http: HttpRequest, opened: Opened, *, started: bool = False) -> None:
        self._http = http
        self._stream = opened.stream
        self._writer = opened.writer
        self._rendering = opened.render(started=started)
        self._batch: list[OutboundMessage] | None = []
        self._held = 0

    async def at_once(self) -> bool:
        """Answer in JSON if the reply is there within a few turns of the scheduler, and return whether it was.

        A client that disconnects meanwhile is noticed by the write, or not at all: the reply was made. The shell bounds
        the time that the write takes.
        """
        batch = self._batch = await self._writer.take_soon()
        if not batch or not self._rendering.is_whole(batch):
            return False
        with trio.CancelScope() as scope:
            self._writer.connection = scope  # to be given up where too much waits for clients
            await self._http.answer(self._rendering.whole(batch))
            self._writer.written()
        return True

    async def run(self, limits: Limits) -> None:
        """Write what comes until the stream or the connection ends."""
        async with trio.open_nursery() as nursery:
            self._writer.connection = nursery.cancel_scope
            nursery.start_soon(watch, self._http, nursery.cancel_scope)
            while await self.step(nursery.cancel_scope, limits):
                pass
            nursery.cancel_scope.cancel()

    async def step(self, connection: trio.CancelScope, limits: Limits) -> bool:
        """Write the next batch, or a comment where there was none for the keep-alive time.

        Returns:
            Whether there may be more: not after the last message, nor after a write that missed its deadline,
            nor to a client that has gone meanwhile. What was being written then is not delivered.
        """
        rendering = self._rendering
        batch, self._batch = self._batch, []
        if not batch and batch is not None and not rendering.is_early:
            batch = await self._writer.take(float("inf") if rendering.is_patient else limits.keep_alive)
            if not batch and batch is not None and rendering.is_patient:
                # What woke it was purged, or is a wish that only an event could tell; there is nothing else to say.
                self._writer.retry = None
                return True
        if batch and self._may_wait(batch):
            self._writer.hold_back()
            return True
        more = False
        stream = self._stream
        with stream.reached.writing(limits.write_deadline, stream.owner) as deadline:
            more = await self._write(batch)
        if deadline.cancelled_caught or connection.cancel_called:
            return False
        if batch:
            self._writer.written()
        return more

    async def _write(self, batch: list[OutboundMessage] | None) -> bool:
        rendering, writer = self._rendering, self._writer
        head = rendering.begin(batch)
        if isinstance(head, Answer):
            await self._http.answer(head)
            return False
        if head is not None:
            await self._http.start_stream(head)
        keeps = batch is not None and not rendering.is_array
        before = rendering.prime(writer.retry, begins=head is not None) if keeps else b""
        first = await writer.keep() if keeps and batch else None
        data, more = rendering.piece(batch, before, first)
        await self._http.write(data, more=more)
        return more

    def _may_wait(self, batch: list[OutboundMessage]) -> bool:
        """Tell whether the answer can still become a JSON array: replies are there, and more of them are to come.

        If none has come since they were held back, it is time to keep the connection alive, as a stream.
        """
        held, self._held = self._held, len(batch)
        return self._rendering.may_become_array and len(batch) > held and _are_replies(batch)


def _are_replies(batch: list[OutboundMessage]) -> bool:
    return all(message.kind is Kind.REPLY for message in batch)


async def watch(http: HttpRequest, connection: trio.CancelScope) -> None:
    """Cancel the connection's scope when its client disconnects."""
    await http.disconnected()
    connection.cancel()
