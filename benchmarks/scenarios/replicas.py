"""Calls that come to another process than has their session."""

import itertools
import socket
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.answers import FIRST_NUMBER, WrongAnswer, check_echo, result_of, text_of
from benchmarks.client import connect, exchange, open_session
from benchmarks.dialect import Dialect
from benchmarks.load import Asking, Load, Question, load, together
from benchmarks.peers.peer import Peer, Setting
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, P50, SLICE_SECONDS, Figures, Metric, Served

_MOST_CONNECTIONS = 1000


class Replicas(Served):
    """The same calls in the same sessions, through the process that has those, and through the other one."""

    name = "replicas"
    title = "Calls at another process"
    what = (
        "`tools/call` of an echo tool in sessions of one of two workers, one session for each connection: through connections to the "
        "other worker, and through connections to that one. The two take turns, a slice of time each; the ratio is that of the "
        "processor time of all processes which one call takes."
    )
    size_title = "connections"
    sizes = {1: 2, 32: 3}
    quick_sizes = (32,)
    metrics = (
        Metric("times", "over a call where its session is", 2),
        CPU,
        P50,
        Metric("later_ms", "p50 later than there, ms", 2),
    )
    seconds = 2.0
    environment: Mapping[str, str] = {Setting.WORKERS: "2"}

    def measures(self, peer: Peer) -> bool:
        """Return whether a server can be measured in this."""
        return peer.name == self.base

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call at both."""
        for connections in sizes:
            ways = _both_ways(target, connections)
            for way in ways:
                load(target, way, seconds / 20, least=1)  # what is done once is done now
            loads: list[list[Load]] = [[], []]
            for _ in range(max(1, round(seconds / 2 / SLICE_SECONDS))):
                for way, taken in zip(ways, loads, strict=True):
                    taken.append(load(target, way, min(seconds / 2, SLICE_SECONDS), least=1))
            there, here = (together(taken).figures() for taken in loads)
            yield (
                connections,
                {
                    **there,
                    "times": there["cpu_us"] / here["cpu_us"],
                    "later_ms": there["p50_ms"] - here["p50_ms"],
                },
            )
            for conversation in itertools.chain(*ways):
                conversation.sock.close()


def _both_ways(target: Target, count: int) -> list[list[Asking]]:
    """Return connections to one process in sessions of the other, and connections to that other one in the same sessions."""
    if target.session_revision is None:
        raise WrongAnswer("it has no sessions")
    here, there = _connect_to_both(target, count)
    questions = [_question(sock, target.port, target.session_revision) for sock in here]
    return [
        [Asking(sock, itertools.repeat(question)) for sock, question in zip(socks, questions, strict=True)]
        for socks in (there, here)
    ]


def _connect_to_both(target: Target, count: int) -> list[list[socket.socket]]:
    """Return so many connections to each of two processes."""
    where = Dialect(target.port, target.revision).call(FIRST_NUMBER, tool="process")
    found: dict[str, list[socket.socket]] = {}
    for _ in range(_MOST_CONNECTIONS):
        sock = connect(target.port)
        process = text_of(result_of(exchange(sock, where)))  # what needs no session is served where it comes
        found.setdefault(process, []).append(sock)
        if len(found) > 1 and min(map(len, found.values())) >= count:
            for surplus in itertools.chain.from_iterable(socks[count:] for socks in found.values()):
                surplus.close()
            return [socks[:count] for socks in found.values()]
    raise WrongAnswer(f"there are not {count} connections to each of two processes")


def _question(sock: socket.socket, port: int, revision: str) -> Question:
    return Question(open_session(sock, port, revision).echo(FIRST_NUMBER), check_echo)
