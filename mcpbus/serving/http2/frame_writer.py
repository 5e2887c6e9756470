"""The frames that a server says on one HTTP/2 connection, until they are sent (RFC 9113, section 6)."""

from mcpbus.serving.http2.errors import ErrorCode
from mcpbus.serving.http2.field_encoder import EMPTY_TABLE
from mcpbus.serving.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER,
    HEADERS,
    LONGEST_PAYLOAD,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    encode_frame,
    encode_number,
)


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
