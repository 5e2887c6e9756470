"""What both sides of an HTTP/2 connection settle on (RFC 9113, section 6.5)."""

import struct
from typing import Final

from mcpbus.serving.http2.errors import ConnectionFault, ErrorCode
from mcpbus.serving.http2.frames import LONGEST_PAYLOAD

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
