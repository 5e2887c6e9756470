"""The answers of one HTTP/2 connection, on their way through its windows: in turns, a frame of each at a time."""

import math
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from mcpbus.serving.counters import ServerCounters
from mcpbus.serving.http2.frames import LONGEST_PAYLOAD
from mcpbus.serving.http2.sender import Http2Sender

Sent = Callable[[bool], None]
"""Told once when what was said is written, or lost."""

_NOTHING: Final = memoryview(b"")
_MOST_AT_ONCE: Final = 4 * LONGEST_PAYLOAD
"""How much is made ready before it is written: the more, the longer a short answer waits behind long ones."""


class Outgoing(msgspec.Struct):
    """What one stream still has to say of its answer: one piece at a time.

    Attributes:
        stream_id: The stream.
        data: What is left of the piece.
        last: Whether it is the last one.
        moved: How much of it was said since `expires` was set.
        sent: Told when it is written, or lost.
        expires: When its client has opened too little of a window for too long.
    """

    stream_id: int
    data: memoryview = _NOTHING
    last: bool = False
    moved: int = 0
    sent: Sent | None = None
    expires: float = math.inf


class Http2SendScheduler:
    """Gives the protocol what the windows of the streams allow.

    What waits here is held by whoever said it, who waits as well; see `Outgoing`.

    Args:
        protocol: The protocol.
        counters: Counts the bytes that wait.
        seconds: How long a client may open no window.
        look_at: Has `is_stalled` asked at a time.

    Attributes:
        protocol: The same.
        busy: Whether what was made ready is still being written, so that nothing more should be.
    """

    __slots__ = ("_counters", "_look_at", "_ready", "_seconds", "_streams", "_waiting", "busy", "protocol")

    def __init__(
        self,
        protocol: Http2Sender,
        counters: ServerCounters,
        seconds: float,
        look_at: Callable[[float], None],
    ) -> None:
        self.protocol = protocol
        self.busy = False
        self._look_at = look_at
        self._counters = counters
        self._seconds = seconds
        self._streams: dict[int, Outgoing] = {}  # those that have something to say
        self._ready: dict[int, None] = {}  # those of them whose windows are open, in the order of their turns
        self._waiting: list[Sent] = []  # those who wait for what was made ready to be written

    def say(self, outgoing: Outgoing, data: bytes, *, last: bool, sent: Sent) -> None:
        """Say a piece of a body on a stream that is open, once the one before it is sent; the last one may be empty."""
        stream_id = outgoing.stream_id
        at_once = not (self.busy or self._ready) and (not data or len(data) <= self.protocol.room(stream_id))
        if at_once:
            self.protocol.say(stream_id, data, last=last)
            self.protocol.earn()
            self._waiting.append(sent)
            return
        outgoing.data = memoryview(data)
        outgoing.last = last
        outgoing.sent = sent
        outgoing.moved = 0
        self._counters.buffered += len(data)
        self._streams[stream_id] = outgoing
        self._ready[stream_id] = None

    def say_answer(self, stream_id: int, block: bytes, body: bytes, sent: Sent) -> bool:
        """Say a whole answer at once, and return whether that could be done; it is short then, and nobody's turn comes before."""
        protocol = self.protocol
        if self.busy or self._ready or not protocol.say_answer(stream_id, block, body):
            return False
        self._waiting.append(sent)
        return True

    def said_head(self, sent: Sent) -> None:
        """Note that an answer, or a piece of it, is all in what the protocol has to say."""
        self._waiting.append(sent)

    def window_opened(self, stream_id: int) -> None:
        """Go on with a stream whose window was opened; with all of them if it is the connection's, 0."""
        for each in (stream_id,) if stream_id else tuple(self._streams):
            if each in self._streams:
                self._ready[each] = None

    def drop(self, outgoing: Outgoing) -> None:
        """Forget what a stream has to say, which has gone."""
        if self._streams.pop(outgoing.stream_id, None) is not None:
            self._ready.pop(outgoing.stream_id, None)
            self._finish(outgoing)(False)

    def is_stalled(self, outgoing: Outgoing) -> bool:
        """Whether the client has not opened a stream's window for too long."""
        if outgoing.expires > trio.current_time() or outgoing.stream_id not in self._streams:
            return False
        if outgoing.stream_id in self._ready:  # it is for others that it waits
            outgoing.expires = trio.current_time() + self._seconds
            self._look_at(outgoing.expires)
            return False
        return True

    @property
    def has_more(self) -> bool:
        """Whether something can be written, or somebody waits for that."""
        return bool(self._waiting or self._ready or self.protocol.says)

    def make_ready(self) -> tuple[bytes, list[Sent]]:
        """Make the next frames, and return them with who is to be told when they are written."""
        size, protocol = 0, self.protocol
        while self._ready and size < _MOST_AT_ONCE:
            stream_id = next(iter(self._ready))
            del self._ready[stream_id]
            outgoing = self._streams[stream_id]
            size += self._say_next(protocol, outgoing)
        data = protocol.data_to_send()
        waiting, self._waiting = self._waiting, []
        return data, waiting

    def _say_next(self, protocol: Http2Sender, outgoing: Outgoing) -> int:
        stream_id, data = outgoing.stream_id, outgoing.data
        size = min(protocol.room(stream_id), len(data)) if data else 0
        whole = size == len(data)
        if size or whole:
            protocol.say(stream_id, data[:size], last=whole and outgoing.last)
            self._counters.buffered -= size
            if whole or size == LONGEST_PAYLOAD:
                protocol.earn()  # a window that is opened byte by byte is no merit
        if whole:
            del self._streams[stream_id]
            outgoing.data = data[size:]
            self._waiting.append(self._finish(outgoing))
            return size
        outgoing.data = data[size:]
        outgoing.moved += size
        if outgoing.moved >= LONGEST_PAYLOAD or outgoing.expires == math.inf:
            outgoing.expires = trio.current_time() + self._seconds
            outgoing.moved = 0
            self._look_at(outgoing.expires)
        if size:
            self._ready[stream_id] = None
        return size

    def _finish(self, outgoing: Outgoing) -> Sent:
        sent = outgoing.sent
        assert sent is not None  # noqa: S101 - it has something to say
        self._counters.buffered -= len(outgoing.data)
        outgoing.data, outgoing.sent, outgoing.expires = _NOTHING, None, math.inf
        return sent
