"""The response of one request from a stream, written in the stack of the sender: no task waits for it.

The first message is written at once, or at the end of the present turn if that is near. Messages of the next millisecond go out together,
one turn of the scheduler later, and so do those that come while the client has not taken the last ones. An application that says the
length of its response is held to it.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import Final, TypeAlias

import trio

from mcpbus.core.limits import Limits
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.serving.write_coalescer import COALESCE_SECONDS, WriteCoalescer
from mcpbus.transports.response_encoder import StreamedResponse, are_replies
from mcpbus.transports.responses import HeaderList

_Kept: TypeAlias = tuple[list[OutboundMessage], bytes, int | None]
"""A batch, what comes before it, and the number of its first event if its log has it."""


class GatheringWriter(ABC):
    """Writes what comes on a stream; how it gets onto the wire is its version's of HTTP.

    Args:
        opened: The stream, which owes one reply at most.
        limits: How long the answer may be quiet, and its client slow.
        coalescer: Has what comes in a row written together.
    """

    __slots__ = (
        "_clock",
        "_coalescer",
        "_ends",
        "_gathers",
        "_held_back",
        "_keeping",
        "_kept",
        "_limits",
        "_most",
        "_over",
        "_rendering",
        "_sending",
        "_stream",
        "_taken",
        "_writer",
        "_written_at",
    )

    def __init__(self, opened: StreamedResponse, limits: Limits, coalescer: WriteCoalescer) -> None:
        self._stream = opened.stream
        self._writer = opened.writer
        self._rendering = opened.render()
        self._limits = limits
        self._coalescer = coalescer
        self._clock = coalescer.clock
        self._most = min(SHORT_BYTES, limits.outbox_bytes) - OVERHEAD_BYTES
        self._gathers = False
        self._held_back = 0  # replies to a batch that wait for the others, to be one JSON array with them
        self._keeping = False
        self._kept: _Kept | None = None
        self._sending = False
        self._over = False
        self._written_at = -math.inf
        # Of a piece that is being written, and the client does not take at once: where its messages end, but for the last one.
        self._ends: list[int] = []
        self._taken = 0

    def begin(self) -> None:
        """Write what is there, and from now on what comes."""
        self._writer.connection = self
        self._writer.notify = self._notice
        if self._stream.log is None and not self._rendering.is_batch:
            self._writer.direct = self._write_one
        self._keep_alive_later()
        if self._stream.outbox or self._stream.outbox.closed:
            self.write_now()
        if self._rendering.is_early and not self._over:
            self.keep_alive()

    def cancel(self) -> None:
        """End in the middle of the answer: the client has left, another one has taken its place, or there is no room for it."""
        if not self._over:
            self._leave()
            self.lose()

    @abstractmethod
    def keep_alive(self) -> None:
        """Say something without meaning, if there was nothing else for a while."""

    def write_now(self) -> None:
        """Write all that waits. See `CoalescedWriter`."""
        self._gathers = False
        while not (self._sending or self._keeping or self._over):
            kept, self._kept = self._kept, None
            if kept is not None:
                self._say(*kept)
                continue
            batch = self._writer.take_now()
            if batch == [] and not self._is_to_leave():
                return
            if batch and self._rendering.may_become_array and self._holds_back(batch):
                return
            self._write(batch)

    def _holds_back(self, batch: list[OutboundMessage]) -> bool:
        """Hold replies back that can still become a JSON array, unless no other one has come for the keep-alive time."""
        held, self._held_back = self._held_back, len(batch)
        if len(batch) <= held or not are_replies(batch):
            return False
        self._written_at = self._clock()  # the keep-alive time begins anew
        self._writer.defer_batch()
        return True

    def _write_quiet(self) -> None:
        """Write the replies that are held back, as events; or a comment, if there are none."""
        self._write(self._writer.take_now())

    def _is_to_leave(self) -> bool:
        """Tell whether the client is to go, and come back later. Only an event could tell it so."""
        if self._rendering.is_patient:
            self._writer.retry = None
        return self._writer.retry is not None

    @abstractmethod
    def lose(self) -> None:
        """End what carries the answer. See `CoalescedWriter`."""

    def _notice(self, final: bool) -> bool:
        """Hear that there is something to take; see `Writer`."""
        if (self._gathers and not final) or self._sending or self._keeping or self._over:
            return self._gathers
        if final or not (
            self._is_about_to_write() or trio.current_time() - self._written_at < COALESCE_SECONDS
        ):
            self.write_now()
            return False
        self._gathers = True
        self._coalescer.add_in_turn(self)
        return True

    def _write_one(self, message: OutboundMessage) -> bool:
        """Write one notification, or the reply behind some, in one step with its fate; see `Writer`.

        What handlers say now and then costs a third of what it does through outbox and batch.
        """
        now, rendering = self._clock(), self._rendering
        if (
            self._sending
            or len(message.data) > self._most
            or (
                not message.final and (now - self._written_at < COALESCE_SECONDS or self._is_about_to_write())
            )
        ):
            return False
        try:
            if not rendering.started:
                head = rendering.begin([message])
                if head is None or isinstance(head, HttpResponse):
                    return False
                self._begin(head)  # which nothing goes before that is not early, and has no log
            begun = self._send_one(message, rendering.encode(message.data))
        except Exception as failure:  # noqa: BLE001 - as in `_say`
            self._fail(failure)
            return message.receipt.fate is not None
        if begun:
            self._written_at = now
        return begun

    def _leave(self) -> None:
        """Let go of the stream, which loses what was being written; where its log is asked to keep that, once it has told."""
        self._let_go()
        if not self._keeping:
            self._writer.__exit__()

    def _let_go(self) -> None:
        self._over = True
        self._writer.notify = self._writer.direct = self._writer.connection = None

    def _write(self, batch: list[OutboundMessage] | None) -> None:
        """Write a batch, a comment if it is empty, or the end if there is none; a batch of a stream with a log once that has it."""
        try:
            head = self._rendering.begin(batch)
            if isinstance(head, HttpResponse):
                self._answer(head, said=bool(batch))
                return
            if head is not None:
                self._begin(head)
            before, keeps = b"", self._stream.log is not None
            if batch is not None and (keeps or head is not None) and not self._rendering.is_array:
                before = self._rendering.prime(self._writer.retry, begins=head is not None)
                if batch and keeps:
                    self._keep(batch, before)
                    return
        except Exception as failure:  # noqa: BLE001 - a field of the head may be one that HTTP cannot say
            self._fail(failure)
        else:
            self._say(batch, before, None)

    def _keep(self, batch: list[OutboundMessage], before: bytes) -> None:
        def hear(first: int | None) -> None:
            self._keeping = False
            if self._over:
                self._writer.__exit__()  # only now it is known what is kept
                return
            self._kept = batch, before, first
            if not self._gathers:
                self._gathers = True
                self._coalescer.add_in_turn(self)

        # The store may have it at once.
        self._keeping = self._gathers = True
        self._writer.store_batch_soon(hear)
        self._gathers = False

    def _say(self, batch: list[OutboundMessage] | None, before: bytes, first: int | None) -> None:
        try:
            data, more = self._rendering.piece(batch, before, first)
            self._send(data, said=bool(batch), last=not more)
            if self._sending and batch and len(batch) > 1 and first is None and not self._rendering.is_array:
                self._ends = self._rendering.ends(batch, before)[:-1]
                self._took(0)
        except Exception as failure:  # noqa: BLE001 - whoever speaks is not to blame
            self._fail(failure)

    def _took(self, number: int) -> None:
        """Note that the client has taken so many bytes more than were known: messages that are whole in these are delivered."""
        self._taken += number
        whole = bisect_right(self._ends, self._taken)
        if whole:
            del self._ends[:whole]
            self._writer.written_first(whole)

    def _written(self, *, said: bool, last: bool) -> None:
        """Take note that a piece is written. With the last one the stream ends, or it is let go of: its client may come back."""
        if self._ends:
            self._ends = []
        if last:
            # The stream may end as soon as it hears of this, and would say so.
            self._let_go()
        if said:
            self._writer.settle_written()
        if last:
            self._writer.__exit__()

    @abstractmethod
    def _begin(self, head: HeaderList) -> None:
        """Begin an answer in pieces; its head goes out with the first one."""

    @abstractmethod
    def _answer(self, answer: HttpResponse, *, said: bool) -> None:
        """Write a whole answer; see `_send`."""

    @abstractmethod
    def _send(self, data: bytes, *, said: bool, last: bool) -> None:
        """Write a piece, and have `_written` called then.

        Args:
            data: The piece.
            said: Whether messages are in it.
            last: Whether it is the last one.
        """

    @abstractmethod
    def _send_one(self, message: OutboundMessage, data: bytes) -> bool:
        """Begin to write one message, and enter it in the books; return whether that could be done. The last is also its end; see `_written`.

        Args:
            message: The message, which is drafted.
            data: The piece that it is.
        """

    @abstractmethod
    def _fail(self, failure: Exception) -> None:
        """Report a failure, and end."""

    def _is_about_to_write(self) -> bool:
        """Tell whether the turn in which something is said is about to end, so that all that is said in it is one write."""
        return False

    @abstractmethod
    def _keep_alive_later(self) -> None:
        """Have `keep_alive` called once the answer has been quiet for long enough."""


WITHOUT_BODY: Final = frozenset({204, 304})
"""Answers of these statuses have no body, nor say how long it is."""


class ContentLengthCheck:
    """What is left of the body of one answer.

    Args:
        method: The HTTP method of the request.
        status: The status of the answer.
        fields: Its header fields, their names in lower case.

    Attributes:
        bodiless: Whether such an answer has no body, whatever is said of it.
        left: How many bytes of it are still to come; None if nobody has said that.

    Raises:
        ValueError: They do not say it in one number: who reads them in another way would find a second answer in this one.
    """

    __slots__ = ("bodiless", "left")

    def __init__(self, method: str, status: int, fields: HeaderList) -> None:
        lengths = [value for name, value in fields if name == b"content-length"]
        if lengths and (len(lengths) > 1 or not lengths[0].isdigit()):
            raise ValueError(f"Content-Length is not one number of bytes: {lengths}")
        self.left = int(lengths[0]) if lengths else None
        self.bodiless = method == "HEAD" or status in WITHOUT_BODY

    @property
    def measured(self) -> bool:
        """Whether the head says where the body ends, if only that there is none."""
        return self.bodiless or self.left is not None

    def take(self, data: bytes, *, more: bool) -> bytes:
        """Return what is to be sent of a piece, the last one unless `more`.

        Raises:
            RuntimeError: The body is not as long as was said.
        """
        if self.bodiless:
            return b""
        if self.left is not None:
            self.left -= len(data)
            if self.left < 0 or (self.left and not more):
                raise RuntimeError("the body of a response is not as long as its Content-Length says")
        return data
