"""What is said over a link, each as an array to whose end newer processes may add; what an older one does not know, it leaves alone.

The frames of a link: what carries the messages of two processes to each other. Nothing here waits.

A frame is the length of its payload, its kind, its channel, and the payload. A long message is several frames, of which all but
the last say that there is more.
"""

import enum
import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from mcpbus.protocol.enums import LogLevel

Fields: TypeAlias = list[tuple[bytes, bytes]]

VERSION: Final = 1
"""What is spoken over links. It is another one only where processes of the last one would misunderstand what is said: kinds of message, and
fields at the end of one, which they leave alone, are none; nor are kinds of what is told, and lists that change."""


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """Who speaks.

    Attributes:
        home: Which process.
        nonce: What only this connection has.
        keys: Names of the keys that it takes, the one that it would rather take before others.
        version: What it speaks; see `VERSION`.
    """

    home: str
    nonce: bytes
    keys: list[bytes]
    version: int = 1


class Open(msgspec.Struct, array_like=True, frozen=True):
    """A request that is to be served.

    Attributes:
        head: A `ForwardedHead`, encoded. Many requests have the same, byte for byte, and so it is read once.
        peer: The address from where it came; None from one that has none.
        body: The whole of it.
    """

    head: bytes
    peer: str | None
    body: bytes


class ForwardedHead(msgspec.Struct, array_like=True, frozen=True):
    """What comes before the body of a request.

    Attributes:
        endpoint: Which of the endpoints is to serve it; the first one that was made is 0.
        verb: See `RequestHead`.
        path: Likewise.
        query: Likewise.
        root: Likewise.
        fields: Its header fields.
    """

    endpoint: int
    verb: str
    path: str
    query: str
    root: str
    fields: Fields


class WholeResponse(msgspec.Struct, array_like=True, frozen=True):
    """A whole answer; see `Answer`."""

    status: int
    headers: Fields
    body: bytes


class ResponseStarted(msgspec.Struct, array_like=True, frozen=True):
    """The head of an answer of status 200 in pieces."""

    headers: Fields


class ResponsePiece(msgspec.Struct, array_like=True, frozen=True):
    """A piece of an answer, the last one unless `more`."""

    data: bytes
    more: bool


class SendToSession(msgspec.Struct, array_like=True, frozen=True):
    """What is to be said to the client of a session.

    Attributes:
        session: The session.
        kind: What it is, the value of a `mcpbus.protocol.routes.MessageKind`; None if nothing is, and the session is to end.
        method: Its method.
        data: The encoded JSON-RPC notification.
        level: The level of a log line.
        uri: The resource that was updated.
        held: If it was held for the client by who had the session before: the epoch of that one, and the name by which it may have been kept.
    """

    session: str
    kind: str | None
    method: str
    data: bytes
    level: LogLevel | None
    uri: str | None
    held: tuple[int, str] | None = None


class Changed(msgspec.Struct, array_like=True, frozen=True):
    """A change; see `mcpbus.core.outbound.ChangeEvent`.

    Attributes:
        list: Which list, a `ListName`; None if it is a resource.
        uri: Which resource.
        number: Which of the changes of its process it is.
    """

    list: str | None
    uri: str
    number: int = 0


class Fates(msgspec.Struct, array_like=True, frozen=True):
    """What became of a change.

    Attributes:
        fates: How many copies have which fate: its verdict and its reason, as in `SendFate`, and the number.
        known: Whether it is known, or was forgotten.
    """

    fates: list[tuple[str, str | None, int]]
    known: bool = False


class SendFate(msgspec.Struct, array_like=True, frozen=True):
    """What became of it; see `mcpbus.core.receipt.Fate`. In words, so that newer processes can have more of them."""

    verdict: str
    reason: str | None


encode = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_open = msgspec.msgpack.Decoder(Open).decode
decode_head = msgspec.msgpack.Decoder(ForwardedHead).decode
decode_answered = msgspec.msgpack.Decoder(WholeResponse).decode
decode_started = msgspec.msgpack.Decoder(ResponseStarted).decode
decode_said = msgspec.msgpack.Decoder(ResponsePiece).decode
decode_tell = msgspec.msgpack.Decoder(SendToSession).decode
decode_changed = msgspec.msgpack.Decoder(Changed).decode
decode_number = msgspec.msgpack.Decoder(int).decode
decode_fates = msgspec.msgpack.Decoder(Fates).decode
decode_told = msgspec.msgpack.Decoder(SendFate).decode


_HEAD: Final = struct.Struct(">IBI")
_HEAD_BYTES: Final = _HEAD.size
_read_head: Final = _HEAD.unpack_from
_MORE: Final = 0x80
PIECE_BYTES: Final = 64 * 1024
"""The longest payload of a frame."""
Message: TypeAlias = tuple[int, int, bytes]
"""Its kind, its channel, and what it says."""


class FrameKind(enum.IntEnum):
    """What a message is. One of a kind that is not known is not looked at, so that newer processes can have more."""

    HELLO = 1
    """Who speaks, at the beginning of a link."""
    PROOF = 2
    """That it has the key."""
    PING = 3
    """That it is there."""
    OPEN = 4
    """A request, with which a channel begins."""
    GONE = 5
    """The client of a request has gone."""
    WRITTEN = 6
    """What the last ANSWER or DATA says was written to the client."""
    ANSWER = 7
    """A whole answer."""
    START = 8
    """The head of an answer in pieces."""
    DATA = 9
    """A piece of it."""
    END = 10
    """Nothing more is said to a request."""
    CHANGED = 11
    """A list or a resource has changed."""
    ELSEWHERE = 12
    """Another process has the session of a request, and what is to be said next is for it to say."""
    RECONNECT = 13
    """The client of a GET stream is to open another one, since the process to which it is connected ends."""
    TELL = 14
    """What is to be said to the client of a session; a channel begins with it. ELSEWHERE, with the same, where the session is not there."""
    TOLD = 15
    """What became of that."""
    GOODBYE = 16
    """Nothing more is said, nor was taken since the channel whose number it has: what came later may be asked elsewhere."""
    SERVING = 17
    """The first message of who has served before there was this link, and may have had something to tell: what has changed."""
    ASK = 18
    """What became of a change that was told; a channel begins with it."""
    FATES = 19
    """The answer to that."""


class FrameError(Exception):
    """Whoever is at the other end does not speak as it has to."""


class OtherVersionError(FrameError):
    """Whoever is at the other end speaks another version, of which nothing more is understood."""


def encode_frames(kind: int, channel: int, payload: bytes = b"") -> bytes:
    """Write a message down."""
    if len(payload) <= PIECE_BYTES:
        return _HEAD.pack(len(payload), kind, channel) + payload
    *begun, last = [payload[at : at + PIECE_BYTES] for at in range(0, len(payload), PIECE_BYTES)]
    frames = [_HEAD.pack(len(piece), kind | _MORE, channel) + piece for piece in begun]
    return b"".join([*frames, _HEAD.pack(len(last), kind, channel), last])


class FrameReader:
    """Reads the messages that come in some bytes.

    Args:
        limit: How many bytes messages may have that have not come to their end, all together.

    Attributes:
        limit: The same; it may be changed.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._unread = b""
        self._begun: dict[tuple[int, int], bytearray] = {}
        self._held = 0

    def read(self, data: bytes) -> Iterator[Message]:
        """Yield the messages whose end comes with these bytes.

        Raises:
            FrameError: They are no frames, or too long.
        """
        data = self._unread + data  # which copies nothing where messages come whole
        at, most, longest = 0, len(data), min(PIECE_BYTES, self.limit)
        try:
            while (begin := at + _HEAD_BYTES) <= most:
                length, kind, channel = _read_head(data, at)
                if length > longest:
                    raise FrameError(f"a frame of {length} bytes is too long")
                if begin + length > most:
                    break
                at = begin + length
                whole: bytes | None = data[begin:at]
                if kind & _MORE or self._begun:
                    whole = self._join(kind, channel, data[begin:at])
                if whole is not None:
                    yield kind, channel, whole
        finally:
            self._unread = data[at:]

    def _join(self, kind: int, channel: int, piece: bytes) -> bytes | None:
        """Return a message that is whole with this piece."""
        if not piece and kind & _MORE:
            raise FrameError("a frame that says nothing says that there is more")
        key = kind & ~_MORE, channel
        if not kind & _MORE and key not in self._begun:
            return piece
        self._held += len(piece)
        if self._held > self.limit:
            raise FrameError(f"more than {self.limit} bytes of messages have not come to their end")
        begun = self._begun.setdefault(key, bytearray())
        begun += piece
        if kind & _MORE:
            return None
        del self._begun[key]
        self._held -= len(begun)
        return bytes(begun)
