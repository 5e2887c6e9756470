"""What an answer looks like that comes on a stream: its form, chosen late, and its pieces."""

from collections.abc import Callable
from itertools import accumulate

import msgspec

from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbox import OutboundMessage, data_of
from mcpbus.core.writer import Writer
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.http.sse import (
    COMMENT,
    encode_event,
    encode_events,
    encode_message,
    encode_messages,
    encode_numbered,
)
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import MessageKind
from mcpbus.transports import responses
from mcpbus.transports.responses import HeaderList, ResponseFormat


class StreamedResponse(msgspec.Struct, frozen=True):
    """An answer that comes on a stream.

    Attributes:
        stream: The stream.
        writer: Its writing end, which has to be used, or left.
        form: What form the answer may take.
        revision: What governs the request; None for a GET.
    """

    stream: MessageStream
    writer: Writer
    form: ResponseFormat
    revision: Revision | None

    def render(self, *, started: bool = False) -> "ResponseEncoder":
        """Begin to make the answer of what the stream says; see `ResponseEncoder`."""
        return ResponseEncoder(self, started=started)


class ResponseEncoder:
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

    def __init__(self, opened: StreamedResponse, *, started: bool = False) -> None:
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
            return not self._stream.replies_pending and are_replies(batch)
        return len(batch) == 1 and batch[0].final

    def whole(self, batch: list[OutboundMessage]) -> HttpResponse:
        """The whole answer, in JSON."""
        if self._form.array:
            return responses.whole_batch(batch)
        return responses.whole_reply(batch[0], self._revision)

    def begin(self, batch: list[OutboundMessage] | None) -> HttpResponse | HeaderList | None:
        """Begin the response with its first batch, or with its end if there is none.

        Returns:
            The whole answer; or the head of one that comes in pieces, the first of which `piece` makes of the batch. None if it
            has begun already.
        """
        if self.started:
            return None
        if batch is None:
            return responses.unanswered(self._stream)
        if self.is_whole(batch):
            return self.whole(batch)
        self.started = True
        return responses.JSON_HEADERS if self.is_array else responses.stream_headers(batch)

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

    def ends(self, batch: list[OutboundMessage], before: bytes) -> list[int]:
        """How many bytes of a piece of events are written once each of its messages is, if they are not kept."""
        sizes = (len(self.encode(message.data)) for message in batch)
        return [*accumulate(sizes, initial=len(before))][1:]

    def _end(self) -> bytes:
        """The end of a response that has begun, if nothing was the last that is said."""
        if self.is_array:
            return b"]"
        retry = self._stream.retry_after
        return b"" if retry is None else encode_event(b"", retry=round(retry * 1000))

    @property
    def is_batch(self) -> bool:
        """Whether the response has the replies of a batch."""
        return self._form.array

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
        return self._stream.replies_pending > 0 and not self._stream.above_high_water


def are_replies(batch: list[OutboundMessage]) -> bool:
    """Whether nothing but replies is in a batch."""
    return all(message.kind is MessageKind.REPLY for message in batch)
