"""The short call over HTTP/2: each connection has so many streams at a time, one as those of HTTP/1.1 have one call.

Its frames are made and read by hand, since a client that takes longer than the server would let it sleep before each call.
"""

import socket
import struct

import hpack
import msgspec

from benchmarks.answers import WrongAnswer, text_of, words
from benchmarks.client import PIECE, connect
from benchmarks.dialect import Dialect
from benchmarks.load import Connection, Conversation, numbers
from benchmarks.peers.peer import HOST, PATH
from benchmarks.process import Target

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER = struct.Struct(">IBI")
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM, END_HEADERS = 1, 4
LARGEST_WINDOW = 2**31 - 1 - 65_535


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Make a frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream) + payload


_OPENING = (
    PREFACE + frame(SETTINGS, 0, 0, b"") + frame(WINDOW_UPDATE, 0, 0, LARGEST_WINDOW.to_bytes(4, "big"))
)
_ACKNOWLEDGED = b"notifications/subscriptions/acknowledged"


def _fields(target: Target, method: str) -> list[tuple[str, str]]:
    """Return the head of a request."""
    return [
        (":method", "POST"),
        (":path", PATH),
        (":scheme", "http"),
        (":authority", f"{HOST}:{target.port}"),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", target.revision),
        ("mcp-method", method),
    ]


def open_listens(target: Target, count: int) -> socket.socket:
    """Return a connection with so many streams that each listen to every change.

    Raises:
        WrongAnswer: One was refused.
    """
    sock, encoder = connect(target.port), hpack.Encoder()
    dialect, fields = Dialect(target.port, target.revision), _fields(target, "subscriptions/listen")
    data = [_OPENING]
    for number in range(count):
        body = msgspec.json.encode(dialect.listen_message())
        data.append(frame(HEADERS, END_HEADERS, 2 * number + 1, encoder.encode(fields)))
        data.append(frame(DATA, END_STREAM, 2 * number + 1, body))
    sock.sendall(b"".join(data))
    heard = b""
    while heard.count(_ACKNOWLEDGED) < count:
        said = sock.recv(PIECE)
        heard += said
        if not said:
            raise WrongAnswer(f"{heard.count(_ACKNOWLEDGED)} of {count} listens were acknowledged")
    return sock


class Streams(Connection):
    """Short calls, each on a stream of its own."""

    def __init__(self, sock: socket.socket, target: Target, at_once: int = 1) -> None:
        super().__init__(sock)
        self.at_once = at_once
        self._dialect = Dialect(target.port, target.revision)
        self._numbers: dict[int, int] = {}
        self._stream = 1
        fields = [*_fields(target, "tools/call"), ("mcp-name", "echo")]
        encoder = hpack.Encoder()
        self._head = encoder.encode(fields)
        self._later_head = encoder.encode(fields)  # it refers to what the first one has added to the table
        self._decoder = hpack.Decoder()
        self._heard = b""
        self._answers: dict[int, bytearray] = {}
        self.sock.sendall(_OPENING)

    def ask(self) -> None:
        """Open a stream with the call."""
        number = self._numbers[self._stream] = next(numbers)
        self._answers[self._stream] = bytearray()
        body = msgspec.json.encode(self._dialect.echo_message(number))
        head, self._head = self._head, self._later_head
        self.sock.sendall(
            frame(HEADERS, END_HEADERS, self._stream, head) + frame(DATA, END_STREAM, self._stream, body)
        )
        self._stream += 2

    def answered(self) -> int:
        """Read frames, and return how many streams have ended."""
        data = self.sock.recv(PIECE)
        if not data:
            raise WrongAnswer("the connection ended within an answer")
        self._heard += data
        ended = 0
        while len(self._heard) >= HEADER.size:
            size_and_kind, flags, stream = HEADER.unpack_from(self._heard)
            end = HEADER.size + (size_and_kind >> 8)
            if len(self._heard) < end:
                break
            if self._take(size_and_kind & 0xFF, flags, stream, self._heard[HEADER.size : end]):
                self._judge(stream)
                ended += 1
            self._heard = self._heard[end:]
        return ended

    def _judge(self, stream: int) -> None:
        number, said = self._numbers.pop(stream), self._answers.pop(stream)
        answer = msgspec.json.decode(said)
        if answer["id"] != number or text_of(answer["result"]) != words(number):
            raise WrongAnswer(f"not what was said: {bytes(said)!r}")

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        if kind == HEADERS:
            status = dict(self._decoder.decode(payload))[":status"]
            if status != "200":
                raise WrongAnswer(f"an HTTP/2 answer of status {status}")
        elif kind == DATA:
            self._answers[stream] += payload
        elif kind in {RST_STREAM, GOAWAY}:
            raise WrongAnswer(f"an HTTP/2 answer was cut short: {kind} {payload!r}")
        return kind in {HEADERS, DATA} and bool(flags & END_STREAM)


def repeat_http2(
    target: Target, connections: int, at_once: int = 1, *, tls: str | None = None
) -> list[Conversation]:
    """Return connections that each repeat the short call over HTTP/2, on so many streams at once; `tls` as for `connect`."""
    return [Streams(connect(target.port, tls=tls), target, at_once) for _ in range(connections)]
