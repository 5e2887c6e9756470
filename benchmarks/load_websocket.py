"""The short call over WebSocket."""

import socket

import msgspec
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Message, Request, TextMessage

from benchmarks.answers import WrongAnswer, text_of, words
from benchmarks.client import PIECE, connect
from benchmarks.dialect import Dialect
from benchmarks.load import Connection, Conversation, numbers
from benchmarks.peers.peer import HOST, PATH
from benchmarks.process import Target


class Frames(Connection):
    """Short calls, each a text message."""

    def __init__(self, sock: socket.socket, target: Target) -> None:
        super().__init__(sock)
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._dialect = Dialect(target.port, target.revision)
        self._number = 0
        upgrade = Request(host=f"{HOST}:{target.port}", target=PATH, subprotocols=["mcp"])
        sock.sendall(self._connection.send(upgrade))
        answer = self._receive()
        if not isinstance(answer[0], AcceptConnection) or answer[0].subprotocol != "mcp":
            raise WrongAnswer(f"the upgrade was answered with {answer}")
        self._answer = ""

    def ask(self) -> None:
        """Send the call."""
        self._number = next(numbers)
        message = msgspec.json.encode(self._dialect.echo_message(self._number)).decode()
        self.sock.sendall(self._connection.send(Message(data=message)))

    def answered(self) -> bool:
        """Read frames, and return whether the answer is complete."""
        for event in self._receive():
            if isinstance(event, TextMessage):
                self._answer += event.data
                if event.message_finished:
                    answer = msgspec.json.decode(self._answer)
                    if answer["id"] != self._number or text_of(answer["result"]) != words(self._number):
                        raise WrongAnswer(f"not what was said: {self._answer!r}")
                    self._answer = ""
                    return True
        return False

    def _receive(self) -> list[object]:
        data = self.sock.recv(PIECE)
        if not data:
            raise WrongAnswer("the connection ended within an answer")
        self._connection.receive_data(data)
        return list(self._connection.events())


def repeat_websocket(target: Target, connections: int) -> list[Conversation]:
    """Return connections that each repeat the short call over a WebSocket."""
    return [Frames(connect(target.port), target) for _ in range(connections)]
