"""The short call over HTTP/2, without TLS: each connection has one stream at a time, as those of HTTP/1.1 have one call.

Its frames are made and read by hand, since a client that takes longer than the server would let it sleep before each call.
"""

import socket
import struct

import hpack
import msgspec

from benchmarks.answers import WrongAnswer, text_of, words
from benchmarks.client import PIECE, connect
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, numbers
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


class Streams(Conversation):
    """Short calls, each on a stream of its own."""

    def __init__(self, sock: socket.socket, target: Target) -> None:
        super().__init__(sock)
        self._dialect = Dialect(target.port, target.revision)
        self._number = 0
        self._stream = 1
        fields = [
            (":method", "POST"),
            (":path", PATH),
            (":scheme", "http"),
            (":authority", f"{HOST}:{target.port}"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", target.revision),
            ("mcp-method", "tools/call"),
            ("mcp-name", "echo"),
        ]
        encoder = hpack.Encoder()
        self._head = encoder.encode(fields)
        self._later_head = encoder.encode(fields)  # it refers to what the first one has added to the table
        self._decoder = hpack.Decoder()
        self._heard = b""
        self._answer = bytearray()
        window = frame(WINDOW_UPDATE, 0, 0, LARGEST_WINDOW.to_bytes(4, "big"))
        self.sock.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + window)

    def ask(self) -> None:
        """Open a stream with the call."""
        self._number = next(numbers)
        body = msgspec.json.encode(self._dialect.echo_message(self._number))
        head, self._head = self._head, self._later_head
        self.sock.sendall(
            frame(HEADERS, END_HEADERS, self._stream, head) + frame(DATA, END_STREAM, self._stream, body)
        )
        self._stream += 2

    def answered(self) -> bool:
        """Read frames, and return whether the stream has ended."""
        data = self.sock.recv(PIECE)
        if not data:
            raise WrongAnswer("the connection ended within an answer")
        self._heard += data
        ended = False
        while len(self._heard) >= HEADER.size:
            size_and_kind, flags, _ = HEADER.unpack_from(self._heard)
            end = HEADER.size + (size_and_kind >> 8)
            if len(self._heard) < end:
                break
            ended |= self._take(size_and_kind & 0xFF, flags, self._heard[HEADER.size : end])
            self._heard = self._heard[end:]
        if ended:
            answer = msgspec.json.decode(self._answer)
            if answer["id"] != self._number or text_of(answer["result"]) != words(self._number):
                raise WrongAnswer(f"not what was said: {bytes(self._answer)!r}")
            self._answer.clear()
        return ended

    def _take(self, kind: int, flags: int, payload: bytes) -> bool:
        if kind == HEADERS:
            status = dict(self._decoder.decode(payload))[":status"]
            if status != "200":
                raise WrongAnswer(f"an HTTP/2 answer of status {status}")
        elif kind == DATA:
            self._answer += payload
        elif kind in {RST_STREAM, GOAWAY}:
            raise WrongAnswer(f"an HTTP/2 answer was cut short: {kind} {payload!r}")
        return kind in {HEADERS, DATA} and bool(flags & END_STREAM)


def repeat_http2(target: Target, connections: int) -> list[Conversation]:
    """Return connections that each repeat the short call over HTTP/2."""
    return [Streams(connect(target.port), target) for _ in range(connections)]
