"""The short call over HTTP+SSE: each client has a connection for its stream, and one for what it POSTs."""

import select
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks.answers import Answer, WrongAnswer, text_of, words
from benchmarks.client import PIECE, connect
from benchmarks.dialect import INITIALIZED, Dialect
from benchmarks.load import Connection, Conversation, numbers
from benchmarks.peers.peer import HOST
from benchmarks.process import Target

_STREAM = "/sse"


class Posts(Connection):
    """Short calls, each a POST, whose reply comes on the stream. They are made in a session, as it was when there was this transport.

    An epoll of its own, which is what the load waits for, stands for both connections.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(connect(target.port))
        self._posts = connect(target.port)
        self._poller = select.epoll()
        self._dialect = Dialect(target.port, target.session_revision or target.revision)
        self._number = 0
        self._accepted = self._replied = False
        self._answer = Answer()
        self._host = f"host: {HOST}:{target.port}\r\n"
        self.sock.sendall(f"GET {_STREAM} HTTP/1.1\r\n{self._host}accept: text/event-stream\r\n\r\n".encode())
        self._heard = Answer()
        _, _, path, query, _ = urlsplit(self._hear().decode())  # some give all of it, from the scheme on
        self._address = f"{path}?{query}"
        self._open_session()
        for sock in (self.sock, self._posts):
            self._poller.register(sock, select.EPOLLIN)

    def fileno(self) -> int:
        """Return what can be read when either connection can."""
        return self._poller.fileno()

    def ask(self) -> None:
        """POST the call."""
        self._number = next(numbers)
        self._post(self._dialect.echo_message(self._number))

    def answered(self) -> int:
        """Read what has come, and return whether that was the last of both."""
        for number, _ in self._poller.poll(0):
            if number == self._posts.fileno():
                self._accepted = self._read_acceptance()
            elif (said := self._read_event()) is not None:
                self._judge(said)
                self._replied = True
        if not (self._accepted and self._replied):
            return 0
        self._accepted = self._replied = False
        self._answer.begin()
        return 1

    def close(self) -> None:
        """End both connections."""
        self._posts.close()
        self._poller.close()
        super().close()

    def _open_session(self) -> None:
        """Make the handshake.

        Raises:
            WrongAnswer: The session was refused.
        """
        self._post(self._dialect.initialize_message())
        self._wait_for_acceptance()
        answer = msgspec.json.decode(self._hear())
        if answer.get("result", {}).get("protocolVersion") != self._dialect.revision:
            raise WrongAnswer(f"a session was refused: {answer}")
        self._post(INITIALIZED)
        self._wait_for_acceptance()

    def _post(self, message: dict[str, Any]) -> None:
        body = msgspec.json.encode(message)
        head = (
            f"POST {self._address} HTTP/1.1\r\n{self._host}content-type: application/json\r\n"
            f"accept: application/json, text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._posts.sendall(head.encode() + body)

    def _wait_for_acceptance(self) -> None:
        while not self._read_acceptance():
            pass
        self._answer.begin()

    def _read_acceptance(self) -> bool:
        """Read a piece of the answer to a POST, and return whether it was the last one."""
        accepted = self._answer.feed(self._posts.recv(PIECE))
        if accepted and self._answer.status != 202:
            raise WrongAnswer(f"a POST was answered with {self._answer.status}")
        return accepted

    def _hear(self) -> bytes:
        """Wait for an event, and return its data."""
        while (said := self._read_event()) is None:
            pass
        return said

    def _read_event(self) -> bytes | None:
        """Read a piece of the stream, and return the data of the event that this completes, if it does."""
        if self._heard.feed(self.sock.recv(PIECE)):
            raise WrongAnswer("the stream has ended")
        body = self._heard.body
        if not body.endswith((b"\n\n", b"\r\n\r\n")):
            return None
        said = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
        body.clear()
        return said[0] if said else None  # a comment says nothing

    def _judge(self, said: bytes) -> None:
        answer = msgspec.json.decode(said)
        if answer["id"] != self._number or text_of(answer["result"]) != words(self._number):
            raise WrongAnswer(f"not what was said: {said!r}")


def repeat_http_sse(target: Target, clients: int) -> list[Conversation]:
    """Return clients that each repeat the short call over HTTP+SSE."""
    return [Posts(target) for _ in range(clients)]
