"""The streams of one HTTP/2 connection, their windows (RFC 9113, sections 5.1 and 6.9), and how many cheap frames a client may send."""

from collections.abc import Callable
from typing import Final

import msgspec

from mcpbus.serving.http2.errors import AbuseFault, ConnectionFault, ErrorCode
from mcpbus.serving.http2.frames import FIRST_WINDOW, LARGEST_WINDOW, LONGEST_PAYLOAD

_MOST_RESETS_KNOWN: Final = 256
"""More than twice as many as may be live, which is what can be reset before the client hears of it."""


class Http2Stream(msgspec.Struct, gc=False):
    """A stream that has not ended.

    Attributes:
        window: How much of an answer the client lets us send.
        expected: How long its body is to be, if that was said.
        received: How much of it has come.
        unread: How much more of it the client may send before we have taken some.
        heard: Whether the client has ended its half.
        said: Whether we have ended ours.
    """

    window: int
    expected: int | None = None
    received: int = 0
    unread: int = FIRST_WINDOW
    heard: bool = False
    said: bool = False


class Http2Streams:
    """The streams of one connection, all of which its client opened.

    Attributes:
        live: Those that have not ended.
        highest: The last one that was opened; all below it are, or were passed over for ever.
        window: How much of all answers together the client lets us send.
    """

    __slots__ = ("_first_window", "_reset", "highest", "live", "window")

    def __init__(self) -> None:
        self.live: dict[int, Http2Stream] = {}
        self.highest = 0
        self.window = FIRST_WINDOW
        self._first_window = FIRST_WINDOW
        self._reset: dict[int, bool] = {}  # the last ones, and whether it was us

    def open(self, stream_id: int) -> Http2Stream:
        """Open a stream above all others.

        Raises:
            ConnectionFault: Only a server could open it.
        """
        if not stream_id & 1:
            raise ConnectionFault("a stream that only a server could open")
        self.highest = stream_id
        stream = self.live[stream_id] = Http2Stream(self._first_window)
        return stream

    def check_opened(self, stream_id: int) -> None:
        """Judge what comes for a stream that may have ended.

        Raises:
            ConnectionFault: It was never opened.
        """
        if stream_id > self.highest or not stream_id & 1:
            raise ConnectionFault("a frame of a stream that is not there")

    def was_reset(self, stream_id: int) -> bool:
        """Whether a stream is one of those that were reset not long ago."""
        return stream_id in self._reset

    def was_reset_by_us(self, stream_id: int) -> bool:
        """Whether it is, and its client may not have known that when it said what comes now."""
        return self._reset.get(stream_id, False)

    def reset(self, stream_id: int, *, by_us: bool) -> bool:
        """Note that a stream was reset, and return whether it was live."""
        live = self.live.pop(stream_id, None) is not None
        if live or by_us:
            self._reset[stream_id] = by_us
            if len(self._reset) > _MOST_RESETS_KNOWN:
                del self._reset[next(iter(self._reset))]
        return live

    def hear_end(self, stream_id: int, stream: Http2Stream) -> None:
        """Note that the client has ended its half."""
        stream.heard = True
        if stream.said:
            del self.live[stream_id]

    def say(self, stream_id: int, stream: Http2Stream, size: int, *, last: bool) -> None:
        """Note that as much of an answer is said, for which there is room."""
        self.window -= size
        stream.window -= size
        if last:
            stream.said = True
            if stream.heard:
                del self.live[stream_id]

    def room(self, stream: Http2Stream) -> int:
        """How many bytes of an answer the next frame may have."""
        return max(0, min(stream.window, self.window, LONGEST_PAYLOAD))

    def widen(self, size: int) -> None:
        """Open the connection's window.

        Raises:
            ConnectionFault: By nothing, or too far.
        """
        self.window += size
        if not size or self.window > LARGEST_WINDOW:
            raise ConnectionFault("a window is opened by nothing, or too far", code_of_window(size))

    def change_first_window(self, size: int) -> bool:
        """Let all streams begin with such a window, also those that have begun; returns whether that is a change.

        Raises:
            ConnectionFault: One of them is too large by that.
        """
        more, self._first_window = size - self._first_window, size
        for stream in self.live.values():
            stream.window += more
            if stream.window > LARGEST_WINDOW:
                raise ConnectionFault("a window that is too large", ErrorCode.FLOW_CONTROL_ERROR)
        return more != 0


def code_of_window(size: int) -> ErrorCode:
    """What is wrong with a window that is opened by as much, which is nothing or too much."""
    return ErrorCode.FLOW_CONTROL_ERROR if size else ErrorCode.PROTOCOL_ERROR


BURST: Final = 1000
"""What a client has at first, and at most."""

RATE: Final = 100
"""What it is given each second."""


class TokenBucket:
    """A budget for what is cheap to send and not to take: resets, pings, settings, windows, malformed requests.

    Each such frame spends some of it (RFC 9113, section 10.5). Time gives it back, and so do answers that the
    client's windows have room for, so that one who reads a lot may say so as often as it likes, and one who only says so may not.

    Args:
        clock: Tells the time in seconds. It is only asked when the budget is used up; so after a pause a client may
            spend the budget twice.
    """

    __slots__ = ("_clock", "_left", "_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._left = float(BURST)

    def spend(self, amount: float) -> None:
        """Take something that asked for nothing.

        Raises:
            AbuseFault: There was too much of it.
        """
        self._left -= amount
        if self._left < 0:
            now = self._clock()
            self._left = min(BURST, self._left + (now - self._since) * RATE)
            self._since = now
            if self._left < 0:
                raise AbuseFault("it sent too many frames that ask for nothing")

    def earn(self, amount: int) -> None:
        """Note that the client had room for something that it has asked for."""
        self._left = min(BURST, self._left + amount)
