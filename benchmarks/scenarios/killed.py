"""The first call of a session whose process was killed."""

import itertools
import os
import signal
import socket
import statistics
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress

from benchmarks.answers import Answer, WrongAnswer, check_echo, result_of, text_of
from benchmarks.client import PATIENCE_SECONDS, PIECE, connect, exchange, open_session
from benchmarks.dialect import Dialect
from benchmarks.engine import valkey
from benchmarks.load import numbers
from benchmarks.machine import LOAD_CORE, on_core
from benchmarks.peers.peer import Setting
from benchmarks.process import Target, running
from benchmarks.scenarios.scenario import Figures, Inside, Metric
from benchmarks.servers import OURS

LEASE_SECONDS = 2.0
_KILLS = 3
_PAUSE_SECONDS = 0.01
_REFUSED = 503
_MCPBUS = OURS[0]


class _Killed(Inside):
    """Kill a process that has a session, and call in that until there is an answer."""

    in_quick = False
    sizes = {0: 3}
    metrics: Sequence[Metric] = (Metric("first_ms", "first answer after the kill, ms", 1),)

    def cost(self, sizes: Sequence[int], seconds: float) -> float:  # noqa: ARG002  as long as it takes
        """Return about how many seconds a turn takes."""
        return 4.0

    def turn(self, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002  as long as it takes
        """Kill."""
        with on_core(LOAD_CORE):
            yield 0, self.figures(statistics.median(self.kill()))

    def figures(self, seconds: float) -> Figures:
        """Return what is reported of so many seconds until the first answer."""
        return {"first_ms": seconds * 1e3}

    @abstractmethod
    def kill(self) -> list[float]:
        """Start servers, kill some, and return how long each time it took until the first answer."""


class KilledWorker(_Killed):
    """One of two workers is killed."""

    name = "killed-worker"
    title = "A call after the kill of its worker"
    what = (
        "One of two workers is killed with SIGKILL, on a connection of which a session was opened: from the kill to the answer of the next "
        "call in that session, by a client that makes it at once, and at once again as often as its connection is reset, or it is told that "
        "the process has ended and that nobody knows what it did. "
        f"The median of {_KILLS} kills."
    )

    def kill(self) -> list[float]:
        """See `_Killed`."""
        with running(_MCPBUS, {Setting.WORKERS: "2"}) as target:
            taken = []
            for _ in range(_KILLS):
                _wait_for_both(target.port)
                taken.append(until_first_answer([target], target))
            return taken


class KilledReplica(_Killed):
    """One of two replicas is killed."""

    name = "killed-replica"
    title = "A call after the kill of its replica"
    what = (
        f"The same of one of two replicas, in Valkey, with a lease of {LEASE_SECONDS:g} s: a client whose connection is reset goes on "
        "to the other one."
    )
    metrics = (Metric("beyond_ms", "first answer after the lease, ms", 1), *_Killed.metrics)

    def figures(self, seconds: float) -> Figures:
        """See `_Killed`."""
        return {"beyond_ms": (seconds - LEASE_SECONDS) * 1e3, **super().figures(seconds)}

    def kill(self) -> list[float]:
        """See `_Killed`."""
        with valkey() as url:
            environment = {Setting.REDIS: url, Setting.LEASE: f"{LEASE_SECONDS:g}"}
            with running(_MCPBUS, environment) as here, running(_MCPBUS, environment) as there:
                return [until_first_answer([here, there], here)]


def until_first_answer(targets: Sequence[Target], target: Target) -> float:
    """Open a session, kill the process that has it, and return how many seconds later a call in it is answered.

    Args:
        targets: Where it can be called.
        target: Where it is opened.

    Raises:
        WrongAnswer: It is not answered as it should be.
    """
    for each in targets:
        with connect(each.port) as sock:  # what is done once is done now
            _check_echo(sock, _open(sock, each))
    ports = itertools.cycle(reversed([each.port for each in targets]))
    sock = connect(target.port)
    session = _open(sock, target)
    _check_echo(sock, session)
    process = int(
        text_of(result_of(exchange(sock, session.call(number := next(numbers), tool="process")), number))
    )
    number = next(numbers)
    request = session.echo(number)
    begun = time.monotonic()
    os.kill(process, signal.SIGKILL)
    while (answer := _answer(sock, request)) is None or is_to_be_made_again(answer):
        if time.monotonic() - begun > PATIENCE_SECONDS:
            raise WrongAnswer(f"no answer within {PATIENCE_SECONDS:g} s")
        if answer is None:
            sock.close()
            with suppress(ConnectionRefusedError):
                sock = connect(next(ports))
    taken = time.monotonic() - begun
    check_echo(answer, number)
    sock.close()
    return taken


def _answer(sock: socket.socket, request: bytes) -> Answer | None:
    """Make one request, and return its whole answer; None if the connection is lost."""
    answer = Answer()
    try:
        sock.sendall(request)
        while data := sock.recv(PIECE):
            if answer.feed(data):
                return answer
    except TimeoutError as error:
        raise WrongAnswer(f"no answer within {PATIENCE_SECONDS:g} s") from error
    except OSError:
        pass
    return None


def is_to_be_made_again(answer: Answer) -> bool:
    """Return whether a call was not made, or nobody knows whether it was."""
    if answer.status == _REFUSED:
        time.sleep(_PAUSE_SECONDS)
        return True
    error = answer.messages()[-1].get("error")
    return error is not None and "has ended" in error["message"]


def _open(sock: socket.socket, target: Target) -> Dialect:
    if target.session_revision is None:
        raise WrongAnswer("it has no sessions")
    return open_session(sock, target.port, target.session_revision)


def _check_echo(sock: socket.socket, session: Dialect) -> None:
    number = next(numbers)
    check_echo(exchange(sock, session.echo(number)), number)


def _wait_for_both(port: int) -> None:
    """Wait until two workers serve."""
    seen: set[str] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen) < 2:
        with connect(port) as sock:
            number = next(numbers)
            asked = Dialect(port, _MCPBUS.revision).call(number, tool="process")
            seen.add(text_of(result_of(exchange(sock, asked), number)))
        if time.monotonic() > deadline:
            raise WrongAnswer("there are not two workers")
        time.sleep(_PAUSE_SECONDS)
