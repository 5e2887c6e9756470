"""The frame that is nearly all that clients send: a short text message, whole, by itself (RFC 6455, section 5.2). No input or output here.

wsproto takes frames apart byte by byte, and can that way read any. What comes just as usual is read here at once, in a tenth of
the time; and `Boundaries` tells when the next one may be, after something else has come.
"""

from typing import Final

_TEXT: Final = 0x81
_FINAL: Final = 0x80
_OPCODE: Final = 0x0F
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_SHORT: Final = 126
"""What a length below says itself; this one is followed by two bytes that say it."""
_LONG: Final = 127
_CLOSE: Final = 8
"""The first opcode of those that are about the connection, and may come within a message."""


def read_text(data: bytes) -> bytes | None:
    """Return the text, if the data is just one frame that is a whole message, in UTF-8 and of less than 64 KiB; None if it is not."""
    if len(data) < 2 + _MASK_BYTES or data[0] != _TEXT or not data[1] & _MASKED:
        return None
    size, mask = data[1] & ~_MASKED, 2
    if size == _SHORT:
        size, mask = int.from_bytes(data[2:4], "big"), 4
        if size < _SHORT:
            return None
    start = mask + _MASK_BYTES
    if size == _LONG or len(data) != start + size:
        return None
    key = (data[mask:start] * (size // _MASK_BYTES + 1))[:size]
    text = (int.from_bytes(data[start:]) ^ int.from_bytes(key)).to_bytes(size)
    try:
        text.decode()
    except UnicodeDecodeError:
        return None
    return text


class Boundaries:
    """Follows bytes that somebody else reads, to where their frames and messages end."""

    __slots__ = ("_begun", "_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._begun = False

    @property
    def between(self) -> bool:
        """Whether the next byte begins a message."""
        return not (self._head or self._left or self._begun)

    def follow(self, data: bytes) -> None:
        """Follow what comes. Where it is not as it may be, whoever reads it ends the connection."""
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            self._head += data[at : at + 1]
            at += 1
            self._look_at_head()

    def _look_at_head(self) -> None:
        head = self._head
        if len(head) < 2:
            return
        size = head[1] & ~_MASKED
        more = {_SHORT: 2, _LONG: 8}.get(size, 0)
        masked = _MASK_BYTES if head[1] & _MASKED else 0
        if len(head) < 2 + more + masked:
            return
        self._left = int.from_bytes(head[2 : 2 + more], "big") if more else size
        self._head = b""
        if head[0] & _OPCODE < _CLOSE:
            self._begun = not head[0] & _FINAL
