"""The frames of HTTP/2, read from a client and written to it, and the settings of both sides (RFC 9113, sections 4 and 6)."""

import struct
from typing import Final, TypeAlias

from mcpbus.serving.http2.errors import ConnectionFault, ErrorCode
from mcpbus.serving.http2.hpack_encoder import EMPTY_TABLE

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
ACK: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08
WITH_PRIORITY: Final = 0x20

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LONGEST_PAYLOAD: Final = 16_384
"""Of a frame, ours or a client's: every client takes as much, and longer ones would keep other streams waiting."""

HEADER: Final = struct.Struct(">IBI")
"""What comes before the payload of a frame: its length and the type together, flags, and stream."""
_HEADER_BYTES: Final = HEADER.size
_PRIORITY_BYTES: Final = 5

Frame: TypeAlias = tuple[int, int, int, bytes]
"""Its type, its flags, its stream (0 is the connection), and its payload."""


class Http2FrameReader:
    """Cuts a client's bytes into frames; what is longer than a frame may be is not waited for."""

    __slots__ = ("_at", "_begun", "_buffer")

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0
        self._begun = False

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

    def add(self, data: bytes) -> None:
        """Take more of the client's bytes."""
        at = self._at
        self._buffer = data if at == len(self._buffer) else self._buffer[at:] + data
        self._at = 0

    def next(self) -> Frame | None:
        """Cut the next frame out, if it has come whole.

        Raises:
            ConnectionFault: It is too long, or the connection does not begin as one of HTTP/2.
        """
        if not self._begun and not self._read_preface():
            return None
        buffer, at = self._buffer, self._at
        start = at + _HEADER_BYTES
        if len(buffer) < start:
            return None
        size_and_kind, flags, stream_id = HEADER.unpack_from(buffer, at)
        size = size_and_kind >> 8
        if size > LONGEST_PAYLOAD:
            raise ConnectionFault(f"a frame of {size} bytes", ErrorCode.FRAME_SIZE_ERROR)
        end = start + size
        if len(buffer) < end:
            return None
        self._at = end
        return size_and_kind & 0xFF, flags, stream_id & 0x7FFF_FFFF, buffer[start:end]

    def next_body(self, stream_id: int) -> bytes | None:
        """Cut the next frame out if it is a whole body, has come whole, and has no padding: short ones mostly come with their head."""
        buffer, at = self._buffer, self._at
        start = at + _HEADER_BYTES
        if len(buffer) < start:
            return None
        size, flags, stream = HEADER.unpack_from(buffer, at)
        kind, size = size & 0xFF, size >> 8
        end = start + size
        if (
            kind != DATA
            or flags != END_STREAM
            or stream != stream_id
            or size > LONGEST_PAYLOAD
            or len(buffer) < end
        ):
            return None
        self._at = end
        return buffer[start:end]

    def _read_preface(self) -> bool:
        come = self._buffer[: len(PREFACE)]
        if not PREFACE.startswith(come):
            raise ConnectionFault("it does not begin with HTTP/2's preface")
        if len(come) < len(PREFACE):
            return False
        self._begun = True
        self._at = len(PREFACE)
        return True


def without_padding(flags: int, payload: bytes) -> bytes:
    """What a frame carries besides its padding, and besides where in an order of streams its client would like to have this one.

    Raises:
        ConnectionFault: It is too short for that.
    """
    start, end = 0, len(payload)
    if flags & PADDED:
        start, end = 1, end - payload[0] if payload else -1
    if flags & WITH_PRIORITY:
        start += _PRIORITY_BYTES
    if len(payload) < start:
        raise ConnectionFault("a frame is too short for its flags", ErrorCode.FRAME_SIZE_ERROR)
    if end < start:
        raise ConnectionFault("a frame has more padding than there is room for")
    return payload[start:end]


def encode_frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def encode_number(kind: int, stream_id: int, number: int) -> bytes:
    """A frame that carries one number: a reset's code, or how far a window is opened."""
    return HEADER.pack(4 << 8 | kind, 0, stream_id) + number.to_bytes(4, "big")


class Http2FrameWriter:
    """What is to be sent next.

    Args:
        settings: What is said first of all, as the payload of a frame.

    Attributes:
        waiting: The frames, in pieces.
    """

    __slots__ = ("_resized", "waiting")

    def __init__(self, settings: bytes) -> None:
        self._resized = False  # whether the client was told that its table stays empty
        self.waiting: list[bytes | memoryview] = [encode_frame(SETTINGS, 0, 0, settings)]

    def take(self) -> bytes:
        """Take it all."""
        waiting, self.waiting = self.waiting, []
        return b"".join(waiting)

    def say_head(self, stream_id: int, block: bytes, *, last: bool) -> None:
        """Say the head of an answer."""
        if not self._resized:
            self._resized, block = True, EMPTY_TABLE + block
        kind, flags = HEADERS, END_STREAM if last else 0
        while len(block) > LONGEST_PAYLOAD:
            self.waiting.append(encode_frame(kind, flags, stream_id, block[:LONGEST_PAYLOAD]))
            block, kind, flags = block[LONGEST_PAYLOAD:], CONTINUATION, 0
        self.waiting += (HEADER.pack(len(block) << 8 | kind, flags | END_HEADERS, stream_id), block)

    def say_data(self, stream_id: int, data: bytes | memoryview, *, last: bool) -> None:
        """Say a part of its body."""
        self.waiting += (HEADER.pack(len(data) << 8 | DATA, END_STREAM if last else 0, stream_id), data)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """Say why a stream is reset."""
        self.waiting.append(encode_number(RST_STREAM, stream_id, code))

    def open_window(self, stream_id: int, size: int) -> None:
        """Let the client send as much more: in a stream, or in all of them together if it is 0."""
        self.waiting.append(encode_number(WINDOW_UPDATE, stream_id, size))

    def acknowledge_settings(self) -> None:
        """Say that the client's settings count from now on."""
        self.waiting.append(encode_frame(SETTINGS, ACK, 0))

    def acknowledge_ping(self, payload: bytes) -> None:
        """Say what the client has said."""
        self.waiting.append(encode_frame(PING, ACK, 0, payload))

    def say_goodbye(self, highest: int, code: ErrorCode) -> None:
        """Say that no stream above this one is served any more."""
        self.waiting.append(encode_frame(GOAWAY, 0, 0, highest.to_bytes(4, "big") + code.to_bytes(4, "big")))


ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6
ENABLE_CONNECT_PROTOCOL: Final = 0x8

FIRST_WINDOW: Final = 65_535
"""Bytes of a body that may be sent before anything else is said of it."""
LARGEST_WINDOW: Final = 2**31 - 1
_LARGEST_FRAME: Final = 2**24 - 1

_SETTING: Final = struct.Struct(">HI")


def encode_settings(settings: dict[int, int]) -> bytes:
    """The payload of a frame that says them."""
    return b"".join([_SETTING.pack(name, value) for name, value in settings.items()])


def read_first_window(payload: bytes) -> int | None:
    """Judge a client's settings, and return the only one that matters here: the first window of each stream, if it says one.

    Nothing is pushed to it; no frame is longer than any client takes, and no head refers to a table.

    Raises:
        ConnectionFault: They are no settings.
    """
    if len(payload) % _SETTING.size:
        raise ConnectionFault("settings are not whole", ErrorCode.FRAME_SIZE_ERROR)
    window: int | None = None
    for name, value in _SETTING.iter_unpack(payload):
        if name == INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise ConnectionFault("a first window that is too large", ErrorCode.FLOW_CONTROL_ERROR)
            window = value
        elif (name == ENABLE_PUSH and value > 1) or (
            name == MAX_FRAME_SIZE and not LONGEST_PAYLOAD <= value <= _LARGEST_FRAME
        ):
            raise ConnectionFault("a setting that cannot be")
    return window
