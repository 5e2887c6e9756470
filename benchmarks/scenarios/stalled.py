"""One client that does not read what it asked for, among a hundred that do."""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain

from benchmarks.client import connect, ready
from benchmarks.load import Load, load, numbers, together
from benchmarks.peers.peer import HOST, Ability, Setting
from benchmarks.process import Target
from benchmarks.scenarios.chatter import repeat_chatter
from benchmarks.scenarios.scenario import P50, P99, RESIDENT, SLICE_SECONDS, Apart, Figures, Metric
from benchmarks.usage import processor_seconds, resident_bytes

READERS = 99
COUNT = 10
UNREAD = 20_000
# How long the server may work for the one that is stalled, in lengths of a turn.
SETTLE_TURNS = 8.0
# What a server may use in a tenth of a second that has nothing to do.
IDLE_SECONDS = 0.01


class Stalled(Apart):
    """Readers call with notifications, without and with somebody who does not read."""

    name = "stalled"
    in_quick = False
    title = "One stalled reader among a hundred"
    what = (
        f"{READERS} connections call a tool that sends {COUNT} notifications, one call after the other. Another connection has "
        f"called for {UNREAD:,} of them and reads nothing. Each turn measures a server without it and another one with it, which has "
        "done what it can for that call, a slice of time each; the ratio is that of the others' p99 within the turn."
    )
    size_title = "stalled"
    sizes = {0: 3, 1: 3}
    others = {0: 1, 1: 1}
    quick_sizes = (0, 1)
    metrics = (P99, P50, Metric("p99_ratio", "p99 with it : without", 2), RESIDENT)
    needs = Ability.CHATTER
    environment = {Setting.STREAMS: "1"}

    def cost(self, sizes: Sequence[int], seconds: float) -> float:
        """Return about how many seconds a turn takes."""
        return 1.1 * seconds * len(sizes) + SETTLE_TURNS * seconds / 2

    def turn(self, targets: Mapping[int, Target], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Measure without and with, a slice each; the ratio only where both are."""
        with ExitStack() as stack:
            for size, target in targets.items():
                if size:
                    stack.enter_context(closing(_stall(target, SETTLE_TURNS * seconds)))
            # Afterwards: a server may end those that say nothing while it is busy with the one that is stalled.
            readers = {size: repeat_chatter(target, READERS, COUNT) for size, target in targets.items()}
            for reader in chain.from_iterable(readers.values()):
                stack.enter_context(closing(reader.sock))
            loads: dict[int, list[Load]] = {size: [] for size in targets}
            for size, target in targets.items():
                load(target, readers[size], seconds / 10, least=1)
            for _ in range(max(1, round(seconds / SLICE_SECONDS))):
                for size, target in targets.items():
                    loads[size].append(load(target, readers[size], min(seconds, SLICE_SECONDS), least=1))
            figures = {
                size: {**together(loads[size]).figures(), "resident": resident_bytes(target.group)}
                for size, target in targets.items()
            }
        for size in targets:
            if size and 0 in targets:
                figures[size]["p99_ratio"] = figures[size]["p99_ms"] / figures[0]["p99_ms"]
            yield size, figures[size]


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
    while (used := processor_seconds(target.group)) > before + IDLE_SECONDS and time.monotonic() < deadline:
        before = used
        time.sleep(0.1)
    return sock
