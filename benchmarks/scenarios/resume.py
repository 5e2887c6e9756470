"""A client that lost the stream of a call, and comes back for the rest."""

import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.answers import Answer, WrongAnswer
from benchmarks.client import PIECE, connect, exchange, open_session
from benchmarks.load import numbers
from benchmarks.peers.peer import Ability, Setting
from benchmarks.process import Target
from benchmarks.scenarios.scenario import Figures, Metric, Served
from benchmarks.usage import processor_seconds

_WAIT_SECONDS = 10.0


class Resume(Served):
    """The connection is lost at the first event; the client comes back when the call has ended."""

    name = "resume"
    in_quick = False
    title = "Coming back to a lost stream"
    what = (
        "A call sends so many notifications; its client loses the connection at the first event, waits until the call has ended, and "
        "comes back with `Last-Event-ID`. From the new connection's beginning until all that was missed and the reply are there."
    )
    size_title = "notifications"
    sizes = {10: 1, 100: 1, 1_000: 2}
    others = {10: 1, 100: 1, 1_000: 1}
    quick_sizes = (10, 100)
    metrics = (
        Metric("ms", "ms", 2),
        Metric("each_us", "µs for each", 1),
        Metric("times", "times", more_is_better=None),
    )
    needs = Ability.RESUMPTION
    environment = {Setting.STREAMS: "1", Setting.RESUMPTION: "1"}
    grows = "ms"

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Lose streams and come back, for a while."""
        for count in sizes:
            taken: list[float] = []
            end = time.monotonic() + seconds
            while len(taken) < 3 or time.monotonic() < end:
                taken.append(_lose_and_come_back(target, count))
            ms = statistics.median(taken) * 1e3
            yield count, {"ms": ms, "each_us": ms * 1e3 / count, "times": len(taken)}


def _lose_and_come_back(target: Target, count: int) -> float:
    if target.session_revision is None:
        raise WrongAnswer("it has no sessions")
    with connect(target.port) as sock:
        session = open_session(sock, target.port, target.session_revision)
        call = session.call(next(numbers), tool="chatter", count=count)
        seen = _read(sock, call, lambda body: bool(_blocks(body)))
    first = _blocks(bytes(seen.body))[0]
    last_id = next((line[3:].strip() for line in first.split(b"\n") if line.startswith(b"id:")), None)
    if last_id is None:
        raise WrongAnswer(f"an event without an id: {first!r}")
    _wait_until_idle(target)
    start = time.perf_counter()
    with connect(target.port) as sock:
        rest = _read(sock, session.get(last_id), lambda body: b'"result"' in body and bool(_blocks(body)))
        taken = time.perf_counter() - start
    # The first event may be one that only has an id.
    if (got := first.count(b"clock=") + rest.body.count(b"clock=")) != count:
        raise WrongAnswer(f"{got} of {count} notifications arrived")
    with connect(target.port) as sock:
        exchange(sock, session.delete())
    return taken


def _read(sock: socket.socket, request: bytes, enough: Callable[[bytes], bool]) -> Answer:
    """Make a request, and read the stream that answers it until that is enough, or ends."""
    sock.sendall(request)
    answer = Answer()
    while not answer.feed(sock.recv(PIECE)) and not enough(bytes(answer.body)):
        pass
    if answer.status != 200 or not answer.is_stream:
        raise WrongAnswer(f"no stream of events: status {answer.status}, {bytes(answer.body[:200])!r}")
    return answer


def _blocks(body: bytes) -> list[bytes]:
    """Return the events that have arrived whole."""
    return [block for block in body.replace(b"\r\n", b"\n").split(b"\n\n")[:-1] if not block.startswith(b":")]


def _wait_until_idle(target: Target) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    before = -1.0
    while (used := processor_seconds(target.group)) > before and time.monotonic() < deadline:
        before = used
        time.sleep(0.03)
