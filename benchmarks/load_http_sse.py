"""The short call over HTTP+SSE: each client has a connection for its stream, and one for what it POSTs."""

import select

import msgspec

from benchmarks.answers import Answer, WrongAnswer, text_of, words
from benchmarks.client import PIECE, connect
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, numbers
from benchmarks.peers.peer import HOST
from benchmarks.process import Target

_STREAM = "/sse"


class Posts(Conversation):
    """Short calls, each a POST, whose reply comes on the stream.

    An epoll of its own, which is what the load waits for, stands for both connections.
    """

    def __init__(self, target: Target) -> None:
        super().__init__(connect(target.port))
        self._posts = connect(target.port)
        self._poller = select.epoll()
        self._dialect = Dialect(target.port, target.revision)
        self._number = 0
        self._accepted = self._replied = False
        self._answer = Answer()
        self._host = f"host: {HOST}:{target.port}\r\n"
        self.sock.sendall(f"GET {_STREAM} HTTP/1.1\r\n{self._host}accept: text/event-stream\r\n\r\n".encode())
        self._heard = Answer()
        while not self._heard.body.endswith(b"\n\n"):
            self._heard.feed(self.sock.recv(PIECE))
        (address,) = (line[6:] for line in bytes(self._heard.body).splitlines() if line.startswith(b"data: "))
        self._address = address.decode()
        self._heard.body.clear()
        for sock in (self.sock, self._posts):
            self._poller.register(sock, select.EPOLLIN)

    def fileno(self) -> int:
        """Return what can be read when either connection can."""
        return self._poller.fileno()

    def ask(self) -> None:
        """POST the call."""
        self._number = next(numbers)
        body = msgspec.json.encode(self._dialect.echo_message(self._number))
        head = (
            f"POST {self._address} HTTP/1.1\r\n{self._host}content-type: application/json\r\n"
            f"accept: application/json, text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._posts.sendall(head.encode() + body)

    def answered(self) -> int:
        """Read what has come, and return whether that was the last of both."""
        for number, _ in self._poller.poll(0):
            if number == self._posts.fileno():
                self._accepted = self._answer.feed(self._posts.recv(PIECE))
                if self._accepted and self._answer.status != 202:
                    raise WrongAnswer(f"a POST was answered with {self._answer.status}")
            elif self._heard.feed(self.sock.recv(PIECE)):
                raise WrongAnswer("the stream has ended")
            elif self._heard.body.endswith(b"\n\n"):
                self._judge(bytes(self._heard.body))
                self._heard.body.clear()
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

    def _judge(self, event: bytes) -> None:
        (said,) = (line[6:] for line in event.splitlines() if line.startswith(b"data: "))
        answer = msgspec.json.decode(said)
        if answer["id"] != self._number or text_of(answer["result"]) != words(self._number):
            raise WrongAnswer(f"not what was said: {event!r}")


def repeat_http_sse(target: Target, clients: int) -> list[Conversation]:
    """Return clients that each repeat the short call over HTTP+SSE."""
    return [Posts(target) for _ in range(clients)]
