"""A closed-loop load: each connection has one exchange in flight, and begins the next when it has the answer.

It runs in a process of its own, on a core of its own, over epoll and nothing else. How much of its core it needed is reported
with every figure (``loader``): where that is near 1, the server may be faster than the figure says.
"""

import gc
import itertools
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import attrs

from benchmarks.answers import FIRST_NUMBER, Answer, WrongAnswer
from benchmarks.client import PIECE, ready
from benchmarks.client import connect as open_socket
from benchmarks.dialect import Dialect
from benchmarks.process import Target
from benchmarks.usage import processor_seconds

STALLED_SECONDS = 10.0
LEAST_ANSWERS = 3
WARM_UP_SECONDS = 10.0
"""The most that a warm-up takes."""
_OK = b"HTTP/1.1 200"


class Conversation(ABC):
    """One that the load has with a server.

    Attributes:
        at_once: How many exchanges it has in flight.
        since: When the last one began, or was answered.
    """

    at_once = 1
    since = 0.0

    @abstractmethod
    def fileno(self) -> int:
        """Return what can be read when an answer has come: the same for as long as the load goes on."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    @abstractmethod
    def ask(self) -> None:
        """Begin an exchange."""

    @abstractmethod
    def answered(self) -> int:
        """Read what has come, and return how many exchanges that completes.

        Raises:
            WrongAnswer: It is not what is expected.
        """


class Question:
    """A request that is made again and again, each time with another number in it, and what is known of its answers.

    The first answer is read and judged in full. One after it is the same if nothing differs but numbers, and its own number is in
    it as often as the first one's was in that; any other is read and judged in full too.

    Args:
        request: The one with the first number in it.
        check: Judges its answer.
        pool: From which pool of sessions its session comes, where there are several.
    """

    __slots__ = ("_check", "_mentions", "_shape", "body", "length", "pool", "request", "room")

    def __init__(self, request: bytes, check: "Check", pool: int | None = None) -> None:
        self.pool = pool
        self.request = request.split(b"%d" % FIRST_NUMBER)
        self._check = check
        # Of an answer: its length and its body's text between numbers, if it came in one piece; its body without digits,
        # and how often its number was in that.
        self.length, self.body = -1, [b""]
        self._shape, self._mentions = b"", -1
        self.room = PIECE

    def judge(self, answer: Answer, number: bytes, piece: bytes | None) -> None:
        """Judge the answer to the request with a number, and remember what it looks like.

        Args:
            answer: It is complete.
            number: The one in the request.
            piece: All of it as it came, if it came in one piece.

        Raises:
            WrongAnswer: It is not what is expected.
        """
        body = bytes(answer.body)
        shape, mentions = body.translate(None, _DIGITS), body.count(number)
        if (shape, mentions, answer.status) != (self._shape, self._mentions, 200):
            self._check(answer, int(number))
            self._shape, self._mentions = shape, mentions
        if piece is not None and piece.endswith(body) and not answer.is_stream:
            self.length, self.body = len(piece), body.split(number)
            self.room = 2 * self.length  # less for the allocator to do than for a whole piece


class Connection(Conversation):
    """One over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def fileno(self) -> int:
        """Return the socket's."""
        return self.sock.fileno()

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


class Asking(Connection):
    """Asks one question after the other over HTTP/1.1, as they come: nobody has seen their numbers before."""

    def __init__(self, sock: socket.socket, questions: Iterator[Question]) -> None:
        super().__init__(sock)
        self._send: Callable[[bytes], object] = sock.sendall
        self._receive = sock.recv
        self._questions = questions
        self._question: Question
        self._number = b""
        self._answer = Answer()
        self._pieces = 0

    @classmethod
    def over(cls, sockets: Sequence[socket.socket], questions: Iterator[Question]) -> "Sequence[Asking]":
        """Return connections that ask the same questions: the next one is for whoever is free."""
        return [cls(sock, questions) for sock in sockets]

    def ask(self) -> None:
        """Make the next request."""
        self._question = question = next(self._questions)
        self._number = b"%d" % next(numbers)
        self._send(self._number.join(question.request))

    def answered(self) -> bool:
        """Read a piece of the answer."""
        question = self._question
        data = self._receive(question.room)
        if (
            len(data) == question.length
            and data.endswith(self._number.join(question.body))
            and data.startswith(_OK)
            and not self._pieces
        ):
            return True
        self._pieces += 1
        if not self._answer.feed(data):
            return False
        question.judge(self._answer, self._number, data if self._pieces == 1 else None)
        self._pieces = 0
        self._answer.begin()
        return True


Check = Callable[[Answer, int], None]
"""Judges the answer to the request that has a number in it; raises `WrongAnswer`."""

numbers = itertools.count(FIRST_NUMBER)
"""Those of the calls of this process."""

_DIGITS = b"0123456789"


@attrs.frozen
class Load:
    """What a load saw.

    Attributes:
        latencies: Seconds from each question to its answer, in order of size; of a connection that has several in flight, from one
            answer to the next.
        seconds: How long it was.
        late: Exchanges that were in flight at its end; they count for processor time alone.
        server_seconds: Processor time of the server.
        loader_seconds: Processor time of the load itself.
    """

    latencies: list[float]
    seconds: float
    late: int
    server_seconds: float
    loader_seconds: float

    def figures(self) -> dict[str, float]:
        """Return what is reported of it."""
        return {
            "rate": len(self.latencies) / self.seconds,
            "p50_ms": percentile(self.latencies, 50) * 1e3,
            "p99_ms": percentile(self.latencies, 99) * 1e3,
            "cpu_us": self.server_seconds / (len(self.latencies) + self.late) * 1e6,
            "loader": self.loader_seconds / self.seconds,
        }


def together(loads: Sequence[Load]) -> Load:
    """Return what several loads saw, one after the other."""
    return Load(
        sorted(latency for each in loads for latency in each.latencies),
        sum(each.seconds for each in loads),
        sum(each.late for each in loads),
        sum(each.server_seconds for each in loads),
        sum(each.loader_seconds for each in loads),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of values that are in order of size.

    Raises:
        WrongAnswer: There are none.
    """
    if not ordered:
        raise WrongAnswer("nothing was answered in time")
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def load(
    target: Target, conversations: Sequence[Conversation], seconds: float, least: int = LEAST_ANSWERS
) -> Load:
    """Load a server for some seconds, and let it answer what is then in flight.

    It takes longer if each connection has not had the least number of answers by then, on average.

    Raises:
        WrongAnswer: An answer is not what is expected, or none comes for a while.
    """
    gc.collect()
    gc.disable()
    poller = select.epoll()
    by_number = {conversation.fileno(): conversation for conversation in conversations}
    for number in by_number:
        poller.register(number, select.EPOLLIN)
    latencies: list[float] = []
    clock, poll = time.perf_counter, poller.poll
    server, own = processor_seconds(target.group), time.process_time()
    start = now = clock()
    for conversation in conversations:
        conversation.since = now
        for _ in range(conversation.at_once):
            conversation.ask()
    end = start + seconds
    try:
        while now < end or len(latencies) < least * len(conversations):
            ready = poll(STALLED_SECONDS)
            if not ready:
                raise WrongAnswer(f"no answer within {STALLED_SECONDS:g} s")
            for number, _ in ready:
                conversation = by_number[number]
                for _ in range(conversation.answered()):
                    now = clock()
                    latencies.append(now - conversation.since)
                    conversation.since = now
                    conversation.ask()
            now = clock()
        own = time.process_time() - own
        _let_finish(poller, by_number)
        server = processor_seconds(target.group) - server
    finally:
        poller.close()
        gc.enable()
    latencies.sort()
    late = sum(conversation.at_once for conversation in conversations)
    return Load(latencies, now - start, late, server, own)


def warm_up(target: Target, conversations: Sequence[Conversation], calls: int) -> None:
    """Make so many calls, as long as that does not take too long: compilers that work while a program runs have done so then.

    Raises:
        WrongAnswer: An answer is not what is expected.
    """
    end = time.monotonic() + WARM_UP_SECONDS
    while calls > 0 and time.monotonic() < end:
        calls -= len(load(target, conversations, 0.1).latencies)


def _let_finish(poller: select.epoll, by_number: dict[int, Conversation]) -> None:
    unanswered = {number: conversation.at_once for number, conversation in by_number.items()}
    while unanswered := {number: count for number, count in unanswered.items() if count}:
        ready = poller.poll(STALLED_SECONDS)
        if not ready:
            raise WrongAnswer(f"{len(unanswered)} answers did not come within {STALLED_SECONDS:g} s")
        for number, _ in ready:
            unanswered[number] -= by_number[number].answered()


def repeat(
    target: Target,
    connections: int,
    request: Callable[[Dialect, int], bytes],
    check: Check,
    *,
    tls: str | None = None,
) -> list[Conversation]:
    """Return connections that each repeat a request, which a method of `Dialect` makes of a number.

    In a revision that has sessions, each has a session of its own. `tls` is as for `connect`.
    """
    conversations: list[Conversation] = []
    for _ in range(connections):
        sock = open_socket(target.port, tls=tls)
        dialect = ready(sock, target.port, target.revision)
        question = Question(request(dialect, FIRST_NUMBER), check)
        conversations.append(Asking(sock, itertools.repeat(question)))
    return conversations
