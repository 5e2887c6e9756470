"""What h2 reads frames from. Most have been cut out and judged already, see `Frames`; they are handed to it as they are."""

from collections.abc import Iterator
from typing import Any, Final

from h2.frame_buffer import FrameBuffer
from hyperframe.frame import DataFrame, HeadersFrame
from hyperframe.frame import Frame as AnyFrame

from mcpbus.serving.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, Frame

_HEADER_BYTES: Final = 9
_PLAIN: Final = {
    (DATA, 0): frozenset[str](),
    (DATA, END_STREAM): frozenset(("END_STREAM",)),
    (HEADERS, END_HEADERS): frozenset(("END_HEADERS",)),
    (HEADERS, END_HEADERS | END_STREAM): frozenset(("END_HEADERS", "END_STREAM")),
}
"""The flags of those that are handed over, as h2 has them."""


class Incoming(FrameBuffer):
    """Gives h2 a whole body's part, or a whole head, at once; it cuts out all else itself.

    h2 keeps no frame beyond the call in which it is given one, so there is one of each kind.
    """

    def __init__(self) -> None:
        super().__init__(server=False)  # the preface was read
        self._frames: dict[int, Any] = {DATA: DataFrame(1), HEADERS: HeadersFrame(1)}
        self._given: AnyFrame | None = None

    def give(self, frame: Frame) -> bytes:
        """Have h2 read a frame next; returns what it is to be fed with."""
        flags = _PLAIN.get((frame.kind, frame.flags))
        if flags is None or not frame.stream_id:
            return frame.raw
        self._given = given = self._frames[frame.kind]
        given.stream_id = frame.stream_id
        given.flags = flags
        given.data = frame.raw[_HEADER_BYTES:]
        return b""

    def add_data(self, data: Any) -> None:
        """See `FrameBuffer`."""
        if data:
            super().add_data(data)

    def __iter__(self) -> Iterator[AnyFrame]:  # type: ignore[override]  # all that h2 does is to iterate
        given, self._given = self._given, None
        return super().__iter__() if given is None else iter((given,))
