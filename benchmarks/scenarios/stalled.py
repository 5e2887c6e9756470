"""One client that does not read what it asked for, among a hundred that do."""

import socket
import time
from collections.abc import Iterator, Sequence

from benchmarks.client import connect, ready
from benchmarks.load import load, numbers
from benchmarks.peers.peer import HOST, Ability
from benchmarks.process import Target
from benchmarks.scenarios.chatter import repeat_chatter
from benchmarks.scenarios.scenario import P50, P99, RESIDENT, Figures, Metric, Served
from benchmarks.usage import processor_seconds, resident_bytes

READERS = 99
COUNT = 10
UNREAD = 20_000
# How long the server may work for the one that is stalled, in lengths of a turn.
SETTLE_TURNS = 8.0


class Stalled(Served):
    """Readers call with notifications, without and with somebody who does not read."""

    name = "stalled"
    title = "One stalled reader among a hundred"
    what = (
        f"{READERS} connections call a tool that sends {COUNT} notifications, one call after the other. Another connection has "
        f"called for {UNREAD:,} of them and reads nothing. Each turn measures without it, and with it when the server has done what "
        "it can for that call; the ratio is that of the others' p99 within the turn."
    )
    size_title = "stalled"
    sizes = {0: 5, 1: 5}
    others = {0: 1, 1: 1}
    quick_sizes = (0, 1)
    metrics = (P99, P50, Metric("p99_ratio", "p99 with it : without", 2), RESIDENT)
    needs = Ability.CHATTER
    environment = {"BENCH_STREAMS": "1"}
    grows_up = True

    def cost(self, sizes: Sequence[int], seconds: float) -> float:  # noqa: ARG002  both are measured, whichever is asked for
        """Return about how many seconds a turn takes."""
        return 2.2 * seconds + SETTLE_TURNS * seconds / 2

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002
        """Measure without, and then with."""
        free = _loaded(target, seconds)
        yield 0, free
        stalled = _stall(target, SETTLE_TURNS * seconds)
        try:
            with_it = _loaded(target, seconds)
        finally:
            stalled.close()
        yield 1, {**with_it, "p99_ratio": with_it["p99_ms"] / free["p99_ms"]}


def _loaded(target: Target, seconds: float) -> Figures:
    # On new connections: a server may have ended those that said nothing while it was busy with the one that is stalled.
    readers = repeat_chatter(target, READERS, COUNT)
    load(target, readers, seconds / 10, least=1)
    figures = load(target, readers, seconds).figures()
    resident = resident_bytes(target.group)
    for reader in readers:
        reader.sock.close()
    return {**figures, "resident": resident}


def _stall(target: Target, seconds: float) -> socket.socket:
    """Call for more than fits anywhere, read nothing, and wait until the server has nothing more to do for it."""
    with connect(target.port) as first:
        dialect = ready(first, target.port, target.revision)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((HOST, target.port))
    sock.sendall(dialect.call(next(numbers), tool="chatter", count=UNREAD))
    deadline = time.monotonic() + seconds
    before = -1.0
    while (used := processor_seconds(target.group)) > before and time.monotonic() < deadline:
        before = used
        time.sleep(0.1)
    return sock
