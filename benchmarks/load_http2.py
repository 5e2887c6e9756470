"""The short call over HTTP/2, without TLS: each connection has one stream at a time, as those of HTTP/1.1 have one call."""

import socket

import h2.config
import h2.connection
import h2.events
import msgspec

from benchmarks.answers import WrongAnswer, text_of, words
from benchmarks.client import PIECE, connect
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, numbers
from benchmarks.peers.peer import HOST, PATH
from benchmarks.process import Target


class Streams(Conversation):
    """Short calls, each on a stream of its own."""

    def __init__(self, sock: socket.socket, target: Target) -> None:
        super().__init__(sock)
        config = h2.config.H2Configuration(header_encoding="utf-8", validate_outbound_headers=False)
        self._connection = h2.connection.H2Connection(config)
        self._connection.initiate_connection()
        self._dialect = Dialect(target.port, target.revision)
        self._number = 0
        self._headers = [
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
        self._answer = bytearray()

    def ask(self) -> None:
        """Open a stream with the call."""
        self._number = next(numbers)
        body = msgspec.json.encode(self._dialect.echo_message(self._number))
        stream = self._connection.get_next_available_stream_id()
        self._connection.send_headers(stream, self._headers)
        self._connection.send_data(stream, body, end_stream=True)
        self.sock.sendall(self._connection.data_to_send())

    def answered(self) -> bool:
        """Read frames, and return whether the stream has ended."""
        data = self.sock.recv(PIECE)
        if not data:
            raise WrongAnswer("the connection ended within an answer")
        ended = False
        for event in self._connection.receive_data(data):
            ended |= self._take(event)
        if more := self._connection.data_to_send():
            self.sock.sendall(more)
        if ended:
            answer = msgspec.json.decode(self._answer)
            if answer["id"] != self._number or text_of(answer["result"]) != words(self._number):
                raise WrongAnswer(f"not what was said: {bytes(self._answer)!r}")
            self._answer.clear()
        return ended

    def _take(self, event: h2.events.Event) -> bool:
        if isinstance(event, h2.events.ResponseReceived):
            if dict(event.headers)[":status"] != "200":
                raise WrongAnswer(f"an HTTP/2 answer with {event.headers}")
        elif isinstance(event, h2.events.DataReceived):
            self._answer += event.data
            self._connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
            raise WrongAnswer(f"an HTTP/2 answer was cut short: {event}")
        return isinstance(event, h2.events.StreamEnded)


def repeat_http2(target: Target, connections: int) -> list[Conversation]:
    """Return connections that each repeat the short call over HTTP/2."""
    return [Streams(connect(target.port), target) for _ in range(connections)]
