"""Lines of a stream: each is a message, however the stream was cut into pieces on its way."""

from collections.abc import Iterable
from typing import Final

TOO_LONG: Final = b"\n"
"""What stands for a line that was longer than it may be. No other line has a line break in it."""


class LineSplitter:
    """Puts lines together.

    Args:
        max_bytes: How long a line may be, without the line break.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unfinished = bytearray()
        self._skips = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that a piece completes, without their ends and without empty ones; `TOO_LONG` for one that is too long."""
        *ended, rest = piece.split(b"\n")
        if not ended:
            self._keep(rest)
            return []
        if self._unfinished or self._skips:
            ended[0] = self._finish(ended[0])
        self._keep(rest)
        return list(self._lines(ended))

    def end(self) -> list[bytes]:
        """Return what is a line although nothing ends it but the stream."""
        return list(self._lines([self._finish(b"")]))

    def _lines(self, ended: Iterable[bytes]) -> Iterable[bytes]:
        for line in ended:
            if len(line) > self._max_bytes or line == TOO_LONG:
                yield TOO_LONG
            elif line := line.strip():
                yield line

    def _finish(self, end: bytes) -> bytes:
        line = TOO_LONG if self._skips else bytes(self._unfinished + end)
        self._skips = False
        self._unfinished.clear()
        return line

    def _keep(self, beginning: bytes) -> None:
        """Keep what has come of a line, unless that is too much already."""
        if not self._skips:
            self._unfinished += beginning
        if len(self._unfinished) > self._max_bytes:
            self._unfinished.clear()
            self._skips = True
