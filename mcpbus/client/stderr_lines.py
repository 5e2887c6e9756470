"""The standard error of a program, read line by line: bounded in memory and in lines a second, and safe to show."""

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

import trio
from trio.abc import ReceiveStream

from mcpbus.protocol.printable import escaped

OnLine: TypeAlias = Callable[[str], object]
"""Called with one line, without its end. Its control characters are escaped."""

LONGEST_LINE: Final = 2_000
"""Characters of a line; the rest of it is left out."""
LINES_A_SECOND: Final = 50
"""Lines a second that are passed on; more are counted."""
BURST_LINES: Final = 500
"""Lines that are passed on at once after a quiet time: a traceback, or the messages of a start."""
_PIECE_BYTES: Final = 64 * 1024
_FLOODED_SECONDS: Final = 0.01
"""The pause after each piece of a flood. The program blocks meanwhile, as its pipe is full."""

_log = logging.getLogger("mcpbus.stderr")


class StderrLines:
    """Reads the standard error of one program until it ends.

    Args:
        name: The program's name.
        on_line: Called with each line; logged with level INFO if None.

    Attributes:
        last: The last line that was not blank.
        ended: Set once all was read.
    """

    def __init__(self, name: str, on_line: OnLine | None) -> None:
        self._name = name
        self._on_line = on_line or self._log
        self.last = ""
        self.ended = trio.Event()
        # The line that has not ended, and whether the rest of it is left out.
        self._line = bytearray()
        self._cut = False
        self._allowed = float(BURST_LINES)
        self._counted_at = trio.current_time()
        self._left_out = 0

    async def read(self, stream: ReceiveStream) -> None:
        """Read until the end of the stream."""
        try:
            while piece := await stream.receive_some(_PIECE_BYTES):
                self._refill()
                self._take(bytes(piece))
                if self._left_out:
                    await trio.sleep(_FLOODED_SECONDS)
            if self._line:
                self._pass_on()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._tell_left_out()
            self.ended.set()

    def _take(self, piece: bytes) -> None:
        begin = 0
        while (end := piece.find(b"\n", begin)) >= 0:
            if self._allowed < 1:
                # The lines are not even cut apart: a flood has tens of thousands in a piece.
                self._left_out += piece.count(b"\n", begin)
                begin = piece.rfind(b"\n") + 1
                self._line, self._cut = bytearray(), False
                break
            self._hold(piece[begin:end])
            self._pass_on()
            begin = end + 1
        self._hold(piece[begin:])

    def _hold(self, part: bytes) -> None:
        room = LONGEST_LINE - len(self._line)
        self._cut |= len(part) > room
        self._line += part[:room]

    def _pass_on(self) -> None:
        text = escaped(self._line.decode(errors="replace").rstrip()) + (" ..." if self._cut else "")
        self._line, self._cut = bytearray(), False
        if text:
            self.last = text
            self._allowed -= 1
            self._on_line(text)

    def _refill(self) -> None:
        now = trio.current_time()
        self._allowed = min(BURST_LINES, self._allowed + (now - self._counted_at) * LINES_A_SECOND)
        self._counted_at = now
        if self._allowed >= LINES_A_SECOND:
            self._tell_left_out()

    def _tell_left_out(self) -> None:
        if self._left_out:
            self._on_line(f"[{self._left_out:,} more lines were left out]")
            self._left_out = 0

    def _log(self, line: str) -> None:
        _log.info("%s: %s", self._name, line)
