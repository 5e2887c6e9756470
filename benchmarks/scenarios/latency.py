"""How long a notification is under way."""

import socket
import time
from collections.abc import Iterator, Sequence

from benchmarks.answers import CLOCK, Answer, WrongAnswer, check_echo
from benchmarks.client import PIECE, connect, ready
from benchmarks.dialect import Dialect
from benchmarks.load import Connection, load, numbers, percentile, repeat
from benchmarks.peers.peer import Ability, Setting
from benchmarks.process import Target
from benchmarks.scenarios.chatter import check_chatter
from benchmarks.scenarios.scenario import P50, P99, Figures, Metric, Served

PAUSE_SECONDS = 0.002


class Latency(Served):
    """A call sends one notification, which holds the time that it was made."""

    name = "latency"
    title = "From a notification's making to its arrival"
    what = (
        "The tool reads the monotonic clock, sends it in a notification, and the client reads the same clock when that has arrived; "
        "while so many other connections make short calls, one after the other."
    )
    size_title = "connections beside it"
    sizes = {0: 3, 32: 2}
    quick_sizes = (0, 32)
    metrics = (
        P50,
        P99,
        Metric("max_ms", "longest, ms", 2),
        Metric("count", "notifications", more_is_better=None),
    )
    needs = Ability.CHATTER
    environment = {Setting.STREAMS: "1"}

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call for a while."""
        for beside in sizes:
            hearer = Hearer(connect(target.port), target)
            others = repeat(target, beside, Dialect.echo, check_echo)
            if beside:
                load(target, [hearer, *others], seconds)
            else:
                _call_at_leisure(hearer, seconds)
            hearer.sock.close()
            for other in others:
                other.sock.close()
            heard = sorted(hearer.heard)
            yield (
                beside,
                {
                    "p50_ms": percentile(heard, 50) / 1e6,
                    "p99_ms": percentile(heard, 99) / 1e6,
                    "max_ms": heard[-1] / 1e6,
                    "count": len(heard),
                },
            )


def _call_at_leisure(hearer: "Hearer", seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        hearer.ask()
        while not hearer.answered():
            pass
        time.sleep(PAUSE_SECONDS)


class Hearer(Connection):
    """Notes how old each notification is when it arrives, in nanoseconds."""

    def __init__(self, sock: socket.socket, target: Target) -> None:
        super().__init__(sock)
        self.heard: list[int] = []
        self._dialect = ready(sock, target.port, target.revision)
        self._number = 0
        self._answer = Answer()
        self._scanned = 0

    def ask(self) -> None:
        """Call the tool."""
        self._number = next(numbers)
        self.sock.sendall(self._dialect.call(self._number, tool="chatter", count=1))

    def answered(self) -> bool:
        """Read a piece of the answer, and note what has arrived whole."""
        try:
            data = self.sock.recv(PIECE)
        except TimeoutError as error:
            raise WrongAnswer("a call with a notification is not answered") from error
        now = time.monotonic_ns()
        complete = self._answer.feed(data)
        whole = max(self._answer.body.rfind(b"\n\n"), self._answer.body.rfind(b"\r\n\r\n"))
        if whole > self._scanned:
            self.heard += [
                now - int(clock) for clock in CLOCK.findall(self._answer.body, self._scanned, whole)
            ]
            self._scanned = whole
        if complete:
            check_chatter(1, self._answer, self._number)
            self._answer.begin()
            self._scanned = 0
        return complete
