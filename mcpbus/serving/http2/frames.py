"""The frames that a client sends, cut out of its bytes, and judged before anything is done about them (RFC 9113, sections 4 and 6).

h2 would keep what it cannot read yet, however long that is said to be; takes nearly every fault for one of the connection; and
does what is cheap to ask and not to do as often as it is asked.
"""

from typing import Final

import msgspec
from h2.exceptions import DenialOfServiceError, FrameTooLargeError, ProtocolError
from h2.settings import SettingCodes

from mcpbus.serving.http2.token_bucket import TokenBucket

(
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION,
) = range(10)
END_STREAM: Final = 0x01
_ACK: Final = 0x01
END_HEADERS: Final = 0x04
_PADDED: Final = 0x08
_WITH_PRIORITY: Final = 0x20

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PREFACE_AS_REQUEST: Final = PREFACE[:18]
"""As much of it as is a request to who speaks HTTP/1.1 alone; the rest may still be on its way."""
LONGEST_PAYLOAD: Final = 16_384
RESET_COST: Final = 3
"""From the client's bucket, for each stream that is reset, whoever does it."""

_HEADER_BYTES: Final = 9
_PRIORITY_BYTES: Final = 5
_SETTING_BYTES: Final = 6
_KNOWN_SETTINGS: Final = frozenset(int(code).to_bytes(2, "big") for code in SettingCodes)
_MOST_FRAGMENTS: Final = 16
_SMALL_BYTES: Final = 16
_SMALL_COST: Final = 0.25


class Frame(msgspec.Struct, gc=False):
    """A frame.

    Attributes:
        kind: Its type.
        flags: Its flags.
        stream_id: Whose it is; 0 for the connection's.
        raw: All of it.
    """

    kind: int
    flags: int
    stream_id: int
    raw: bytes


class Frames:
    """Cuts a client's bytes into frames.

    Those that mean nothing here are left out: priorities (section 5.3.2), settings and types that nobody has defined.

    Args:
        bucket: What the client may send that asks for nothing.
        longest_block: How long the fields of one request may be as they are sent, compressed.
    """

    __slots__ = ("_at", "_block", "_bucket", "_buffer", "_fragments", "_length", "_longest", "_preface")

    def __init__(self, bucket: TokenBucket, longest_block: int) -> None:
        self._bucket = bucket
        self._longest = longest_block
        self._buffer = b""
        self._at = 0
        self._preface = False
        self._block: int | None = None  # the stream whose fields have begun, and not ended
        self._fragments = 0
        self._length = 0

    @property
    def waiting(self) -> int:
        """How many bytes are there that were not read yet."""
        return len(self._buffer) - self._at

    @property
    def body_of(self) -> int | None:
        """The stream of whose body a frame has come in part; None if what has come in part, if anything, is something else."""
        buffer, at = self._buffer, self._at
        if self.waiting < _HEADER_BYTES or buffer[at + 3] != DATA:
            return None
        return int.from_bytes(buffer[at + 5 : at + 9], "big") & 0x7FFF_FFFF

    @property
    def in_head(self) -> bool:
        """Whether the rest of something is missing that is not a part of a body."""
        return self._block is not None or (self.waiting > 0 and self.body_of is None)

    def add(self, data: bytes) -> None:
        """Take more of the client's bytes."""
        self._buffer = self._buffer[self._at :] + data if self.waiting else data
        self._at = 0

    def next(self) -> Frame | None:
        """Cut the next frame out, if it has come whole.

        Raises:
            DenialOfServiceError: There were too many that ask for nothing.
            ProtocolError: It cannot be.
        """
        if not self._preface and not self._read_preface():
            return None
        while True:
            buffer, at = self._buffer, self._at
            if len(buffer) < at + _HEADER_BYTES:
                return None
            size = int.from_bytes(buffer[at : at + 3], "big")
            if size > LONGEST_PAYLOAD:
                raise FrameTooLargeError(f"a frame of {size} bytes")
            end = at + _HEADER_BYTES + size
            if len(buffer) < end:
                return None
            self._at = end
            kind, flags = buffer[at + 3], buffer[at + 4]
            stream_id = int.from_bytes(buffer[at + 5 : at + 9], "big") & 0x7FFF_FFFF
            frame = self._judge(Frame(kind, flags, stream_id, buffer[at:end]), size)
            if frame is not None:
                return frame

    def _read_preface(self) -> bool:
        come = self._buffer[: len(PREFACE)]
        if not PREFACE.startswith(come):
            raise ProtocolError("it does not begin with HTTP/2's preface")
        if len(come) < len(PREFACE):
            return False
        self._preface = True
        self._at = len(PREFACE)
        return True

    def _judge(self, frame: Frame, size: int) -> Frame | None:
        """Return what is to be done about; None if that is nothing."""
        kind = frame.kind
        if self._block is not None:
            if kind != CONTINUATION or frame.stream_id != self._block:
                raise ProtocolError("a header block is interrupted")
            self._go_on_with_block(frame, size)
            return frame
        if kind == DATA:
            self._judge_data(frame, size)
            return frame
        if kind == HEADERS:
            frame = _without_priority(frame, size) if frame.flags & _WITH_PRIORITY else frame
            self._fragments = self._length = 0
            self._block = frame.stream_id
            self._go_on_with_block(frame, size)
            return frame
        self._bucket.spend(RESET_COST if kind == RST_STREAM else 1)
        return _judge_rare(frame, size)

    def _go_on_with_block(self, frame: Frame, size: int) -> None:
        if frame.kind == CONTINUATION:
            self._bucket.spend(1)
        self._fragments += 1
        self._length += size
        if self._fragments > _MOST_FRAGMENTS or self._length > self._longest:
            raise DenialOfServiceError("it sent a header block that does not end")
        if frame.flags & END_HEADERS:
            self._block = None

    def _judge_data(self, frame: Frame, size: int) -> None:
        if size < _SMALL_BYTES + 256 and not frame.flags & END_STREAM:
            padding = 1 + frame.raw[_HEADER_BYTES] if frame.flags & _PADDED and size else 0
            if size <= padding:
                self._bucket.spend(1)
            elif size - padding < _SMALL_BYTES:
                self._bucket.spend(_SMALL_COST)


def _judge_rare(frame: Frame, size: int) -> Frame | None:
    """Judge what is neither a part of a head nor of a body."""
    kind = frame.kind
    if kind == SETTINGS:
        if size and frame.flags & _ACK:
            raise FrameTooLargeError("an acknowledgement with settings")
        return _with_known_settings(frame, size)
    if kind == PRIORITY:
        if not frame.stream_id or size != _PRIORITY_BYTES:
            raise ProtocolError("a priority of no stream, or of no use")
        return None
    if kind in {PUSH_PROMISE, CONTINUATION} or (kind == GOAWAY and frame.stream_id):
        raise ProtocolError("a frame that no client may send, or not here")
    return frame if kind < CONTINUATION else None


def _without_priority(frame: Frame, size: int) -> Frame:
    """Take out where in an order of streams the client would like to have this one (section 5.3.2)."""
    start = _HEADER_BYTES + (1 if frame.flags & _PADDED else 0)
    if size < start - _HEADER_BYTES + _PRIORITY_BYTES:
        raise ProtocolError("a frame is too short for its flags")
    flags = frame.flags & ~_WITH_PRIORITY
    return _made_of(frame, flags, frame.raw[_HEADER_BYTES:start] + frame.raw[start + _PRIORITY_BYTES :])


def _with_known_settings(frame: Frame, size: int) -> Frame:
    """Leave out what h2 would keep though it means nothing; one that is not in order is for h2 to refuse."""
    if size % _SETTING_BYTES:
        return frame
    raw = frame.raw
    settings = [raw[at : at + _SETTING_BYTES] for at in range(_HEADER_BYTES, len(raw), _SETTING_BYTES)]
    known = [setting for setting in settings if setting[:2] in _KNOWN_SETTINGS]
    return frame if len(known) == len(settings) else _made_of(frame, frame.flags, b"".join(known))


def _made_of(frame: Frame, flags: int, payload: bytes) -> Frame:
    head = len(payload).to_bytes(3, "big") + bytes([frame.kind, flags]) + frame.stream_id.to_bytes(4, "big")
    return Frame(frame.kind, flags, frame.stream_id, head + payload)


def ending(frame: Frame) -> Frame:
    """The same frame, as the last of its stream."""
    return _made_of(frame, frame.flags | END_STREAM, frame.raw[_HEADER_BYTES:])
