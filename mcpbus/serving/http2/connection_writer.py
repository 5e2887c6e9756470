"""What an HTTP/2 connection says, on its way out: at once as far as its client takes it, and the rest in a task."""

import math
from collections.abc import Callable
from typing import Final, Protocol

import trio

from mcpbus.serving.deadlines import GONE
from mcpbus.serving.http2.send_scheduler import Http2SendScheduler, Sent
from mcpbus.serving.write_coalescer import COALESCE_SECONDS, WriteCoalescer
from mcpbus.serving.writer_failures import give_up

_MOST_AT_ONCE: Final = 256 * 1024
"""Bytes that are written before other connections have a turn."""
_MOST_HEARD: Final = 64 * 1024
"""Bytes that are read from a client that takes nothing meanwhile."""


class Http2WriterOwner(Protocol):
    """Whose words are written."""

    def lose(self) -> None:
        """Hear in a task that the client has gone. No schedule point."""

    def lose_soon(self) -> None:
        """The same while somebody speaks, who may be in the middle of something. No schedule point."""

    def said_all(self) -> None:
        """Hear that the client was told all that there was to say. No schedule point."""


class ConnectionWriter:
    """Writes for one connection; no two write at once.

    Args:
        stream: The connection.
        sending: Makes the bytes, and knows who waits for them to be written.
        coalescer: Calls `write_now`.
        connection: Who is told what comes of it.

    Attributes:
        in_turn: Whether a turn of the connection is under way, at the end of which all is written.
        over: Whether nothing is written any more.
        unsent: What the task has to write first, and who waits for that; None if the client takes all at once.
        heard: How many bytes were read from the client since something was written.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        sending: Http2SendScheduler,
        coalescer: WriteCoalescer,
        connection: Http2WriterOwner,
    ) -> None:
        self._stream = stream
        # What of this is not encrypted can be sent without waiting.
        self._sends_now: Callable[[bytes], int] | None = getattr(stream, "send_now", None)
        self._sending = sending
        self._coalescer = coalescer
        self._clock = coalescer.clock
        self._connection = connection
        self.in_turn = False
        self.over = False
        self._flushing = False
        self._held = False  # the coalescer will have it written
        self._flushed_at = -math.inf
        self.unsent: tuple[bytes, list[Sent]] | None = None
        self.heard = 0
        self._to_write = trio.lowlevel.ParkingLot()
        self._written = trio.lowlevel.ParkingLot()

    def flush(self) -> None:
        """Have what was said written: at the end of the turn, now, or with what is said in the same turn of the scheduler."""
        if self.in_turn or self._flushing or self.over:
            return
        try:
            if self._clock() - self._flushed_at >= COALESCE_SECONDS:
                self.flush_now()
            else:
                self.flush_soon()
        except Exception as failure:  # noqa: BLE001 - the fate of what was said is told by the end, and not by whoever says it as well
            give_up(self, failure)

    def open_window(self, stream_id: int, size: int) -> None:
        """Let the client send as much more of a body."""
        self._sending.protocol.open_window(stream_id, size)
        self.flush()

    def write_piece(self, stream_id: int, data: bytes, begin: Callable[[], Sent]) -> bool:
        """Write a piece of an answer by itself, if nothing else is to be written, and the client takes some of it at once.

        Args:
            stream_id: Its stream.
            data: The piece.
            begin: Called where the client has not taken all of it: who is to be told what becomes of the rest, which the task writes.

        Returns:
            Whether it was done. Otherwise nothing has come of it that anybody would see.
        """
        sending = self._sending
        if (
            self.in_turn
            or self._flushing
            or self.over
            or self.unsent is not None
            or self._sends_now is None
            or sending.has_more
        ):
            return False
        now = self._clock()
        if now - self._flushed_at < COALESCE_SECONDS or not sending.protocol.say_piece(stream_id, data):
            return False
        self._flushed_at = now
        rest = self._send_now(sending.protocol.data_to_send())
        if rest:
            self._leave_to_task(rest, [begin()])
        return rest is not None

    def _leave_to_task(self, data: bytes, waiting: list[Sent]) -> None:
        self.unsent, self._sending.busy = (data, waiting), True
        self.heard = 0
        self._to_write.unpark()

    def flush_soon(self) -> None:
        """Have it written in the next turn of the scheduler."""
        if not self._held:
            self._held = True
            self._coalescer.add(self)

    def write_now(self) -> None:
        """See `CoalescedWriter`."""
        self._held = False
        self.flush_now()

    def lose(self) -> None:
        """See `CoalescedWriter`."""
        self._connection.lose_soon()

    def flush_now(self) -> None:
        """Write what there is, as far as that takes no time; the rest is left to the task."""
        if self._flushing or self.over or self.unsent is not None:
            return
        self._flushing = True
        try:
            written = 0
            while self._sending.has_more and not self.over:
                waiting: list[Sent] = []
                try:
                    data, waiting = self._sending.make_ready()
                    rest = self._send_now(data) if written < _MOST_AT_ONCE else data
                except Exception as failure:  # noqa: BLE001 - there is no memory, and whoever speaks is not to blame
                    self.unsent = (b"", waiting)  # nothing is written any more; the end tells them
                    give_up(self, failure)
                    break
                if rest:
                    self._leave_to_task(rest, waiting)
                    break
                written += len(data)
                _tell(waiting, whole=rest is not None)
            self._flushed_at = self._clock()
        finally:
            self._flushing = False
        if self.unsent is None:
            self._connection.said_all()

    def _send_now(self, data: bytes) -> bytes | None:
        """Send what the client takes at once, and return the rest; None if it has gone."""
        if self._sends_now is None:
            return data
        try:
            return data[self._sends_now(data) :]
        except GONE:
            self._connection.lose_soon()
            return None

    async def run(self) -> None:
        """Write what the client does not take at once, and all that is said meanwhile, until the connection is over."""
        try:
            await self._write_rest()
        finally:
            self.over = (
                True  # a write that failed from now on could not end the connection: its nursery is closed
            )

    async def _write_rest(self) -> None:
        while not self.over:
            if self.unsent is None:
                await self._to_write.park()
                continue
            data, waiting = self.unsent
            try:
                # Half of it would corrupt what follows; the stream has a deadline.
                with trio.CancelScope(shield=True):
                    await self._stream.send_all(data)
            except GONE:
                self._connection.lose()
                return
            if self.over:
                return
            self._flushing = True
            try:
                _tell(waiting, whole=True)
            finally:
                self._flushing = False
            data, waiting = self._sending.make_ready()
            self.unsent = (data, waiting) if data or waiting else None
            self.heard = 0
            self._written.unpark_all()
            if self.unsent is None:
                self._sending.busy = False
                self._connection.said_all()

    async def caught_up(self) -> None:
        """Wait while much was read since the client has taken anything: what it asks for would have to be kept."""
        while self.unsent is not None and self.heard > _MOST_HEARD and not self.over:
            await self._written.park()

    def give_up(self) -> None:
        """Tell all whose words are not written any more, once it is over."""
        unsent, self.unsent = self.unsent, None
        _tell([*(() if unsent is None else unsent[1]), *self._sending.make_ready()[1]], whole=False)
        self._to_write.unpark_all()
        self._written.unpark_all()


def _tell(waiting: list[Sent], *, whole: bool) -> None:
    for sent in waiting:
        sent(whole)
