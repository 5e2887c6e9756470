"""Sessions that come and go."""

import socket
from collections.abc import Iterator, Sequence

from benchmarks.answers import FIRST_NUMBER, Answer, WrongAnswer, check_echo, result_of
from benchmarks.client import PIECE, connect
from benchmarks.dialect import Dialect
from benchmarks.load import Connection, load, numbers
from benchmarks.peers.peer import Ability
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, P50, P99, RESIDENT, Figures, Metric, Served
from benchmarks.usage import resident_bytes

CONNECTIONS = 32
# They stand for what differs from session to session, in requests that are made beforehand.
_SESSION, _NUMBER = b"<session>", b"%d" % FIRST_NUMBER


class Storm(Served):
    """Open a session, make one call, delete it; and so on."""

    name = "storm"
    title = "A storm of sessions"
    what = (
        f"On each of {CONNECTIONS} connections: `initialize`, `initialized`, one call of the echo tool, DELETE; then the next "
        "session. The figures are of whole sessions."
    )
    metrics = (Metric("rate", "sessions/s", more_is_better=True), P50, P99, CPU, RESIDENT, LOADER)
    needs = Ability.SESSIONS
    others = {0: 1}

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Open sessions for a while."""
        conversations = [Session(connect(target.port), target) for _ in range(CONNECTIONS)]
        load(target, conversations, seconds / 10, least=1)
        figures = load(target, conversations, seconds).figures()
        for size in sizes:
            yield size, {**figures, "resident": resident_bytes(target.group)}
        for conversation in conversations:
            conversation.sock.close()


class Session(Connection):
    """A connection on which one session follows the other; an exchange is a whole session."""

    def __init__(self, sock: socket.socket, target: Target) -> None:
        super().__init__(sock)
        if target.session_revision is None:
            raise WrongAnswer("it has no sessions")
        outside = Dialect(target.port, target.session_revision)
        inside = Dialect(target.port, target.session_revision, _SESSION)
        self._initialize = outside.initialize()
        self._initialized = inside.initialized().split(_SESSION)
        self._echo = inside.echo(FIRST_NUMBER)
        self._delete = inside.delete().split(_SESSION)
        self._requests: Iterator[bytes] = iter(())
        self._answer = Answer()

    def ask(self) -> None:
        """Open a session."""
        self._requests = self._life()
        self.sock.sendall(next(self._requests))

    def answered(self) -> bool:
        """Read an answer, and go on with the session; return whether it has ended."""
        if not self._answer.feed(self.sock.recv(PIECE)):
            return False
        following = next(self._requests, None)
        self._answer.begin()
        if following is not None:
            self.sock.sendall(following)
        return following is None

    def _life(self) -> Iterator[bytes]:
        """Yield the requests of a session, each when the answer to the last has come."""
        yield self._initialize
        result_of(self._answer)
        session = self._answer.headers.get(b"mcp-session-id")
        if session is None:
            raise WrongAnswer("initialize gave no session id")
        yield session.join(self._initialized)
        self._expect(202)
        number = next(numbers)
        yield self._echo.replace(_NUMBER, b"%d" % number).replace(_SESSION, session)
        check_echo(self._answer, number)
        yield session.join(self._delete)
        self._expect(200, 202, 204)

    def _expect(self, *statuses: int) -> None:
        if self._answer.status not in statuses:
            raise WrongAnswer(f"a session's request was answered with {self._answer.status}")
