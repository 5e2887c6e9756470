"""The frames of WebSocket by hand: such as a client sends, right ones and wrong ones, and those that a server has sent."""

import struct

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x37\xfa\x21\x3d"


def frame(opcode, payload=b"", *, fin=True, rsv=0, masked=True, length=None):
    """One frame.

    Args:
        opcode: Its opcode.
        payload: What it carries.
        fin: Whether it is the last one of its message.
        rsv: Its three reserved bits.
        masked: Whether it is, as it must be.
        length: What it says of its length, unless the truth.
    """
    size = len(payload) if length is None else length
    bit = 0x80 if masked else 0
    if size < 126:
        head = bytes([bit | size])
    elif size < 2**16:
        head = struct.pack("!BH", bit | 126, size)
    else:
        head = struct.pack("!BQ", bit | 127, size)
    first = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    if not masked:
        return first + head + payload
    mask = (MASK * (len(payload) // 4 + 1))[: len(payload)]
    return first + head + MASK + (int.from_bytes(payload) ^ int.from_bytes(mask)).to_bytes(len(payload))


def close(code=None, reason=b""):
    """What a close frame carries."""
    return b"" if code is None else struct.pack("!H", code) + reason


def split(data):
    """The frames that a server has sent, as opcode and payload, and what is left behind the last whole one."""
    found = []
    while len(data) >= 2:
        first, size, at = data[0], data[1], 2
        assert first & 0xF0 == 0x80, "a server's frames are whole messages, and no extension is agreed on"
        assert size < 128, "a server masks nothing"
        if size >= 126:
            at = 4 if size == 126 else 10
            size = int.from_bytes(data[2:at], "big")
        if len(data) < at + size:
            break
        found.append((first & 15, data[at : at + size]))
        data = data[at + size :]
    return found, data


def frames(data):
    """The frames that a server has sent; all are whole."""
    found, rest = split(data)
    assert rest == b""
    return found
