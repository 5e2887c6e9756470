"""One client that does not read what it asked for, among a hundred that do."""

import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.client import connect, ready
from benchmarks.dialect import Dialect
from benchmarks.load import load, repeat
from benchmarks.peers.peer import HOST, Ability
from benchmarks.process import Target
from benchmarks.scenarios.chatter import check_chatter
from benchmarks.scenarios.scenario import P50, P99, RESIDENT, Figures, Metric, Served
from benchmarks.usage import processor_seconds, resident_bytes

READERS = 99
COUNT = 10
UNREAD = 20_000
REPEATS = 3
SETTLE_SECONDS = 10.0


class Stalled(Served):
    """Readers call with notifications, without and with somebody who does not read."""

    name = "stalled"
    title = "One stalled reader among a hundred"
    what = (
        f"{READERS} connections call a tool that sends {COUNT} notifications, one call after the other. Another connection has "
        f"called for {UNREAD:,} of them and reads nothing. Measured in turns without and with it, when the server has done what it "
        "can for that call; the ratio is that of the others' p99."
    )
    size_title = "stalled"
    sizes = (0, 1)
    quick_sizes = (0, 1)
    metrics = (P99, P50, Metric("p99_ratio", "p99 with it : without", 2), RESIDENT)
    needs = Ability.CHATTER
    environment = {"BENCH_STREAMS": "1"}  # noqa: RUF012
    grows_up = True
    rounds = 2

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:  # noqa: ARG002
        """Measure without and with, again and again."""
        call = partial(Dialect.call, tool="chatter", count=COUNT)
        readers = repeat(target, READERS, call, partial(check_chatter, COUNT))
        load(target, readers, seconds / 10)
        without: list[Figures] = []
        with_it: list[Figures] = []
        for _ in range(REPEATS):
            without.append(_with_memory(target, load(target, readers, seconds).figures()))
            stalled = _stall(target)
            try:
                with_it.append(_with_memory(target, load(target, readers, seconds).figures()))
            finally:
                stalled.close()
        for reader in readers:
            reader.sock.close()
        pairs = zip(with_it, without, strict=True)
        ratio = statistics.median(stalled["p99_ms"] / free["p99_ms"] for stalled, free in pairs)
        yield 0, _medians(without)
        yield 1, {**_medians(with_it), "p99_ratio": ratio}


def _stall(target: Target) -> socket.socket:
    """Call for more than fits anywhere, read nothing, and wait until the server has nothing more to do for it."""
    with connect(target.port) as first:
        dialect = ready(first, target.port, target.revision)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((HOST, target.port))
    sock.sendall(dialect.call("chatter", request_id=2, count=UNREAD))
    deadline = time.monotonic() + SETTLE_SECONDS
    before = -1.0
    while (used := processor_seconds(target.group)) > before and time.monotonic() < deadline:
        before = used
        time.sleep(0.1)
    return sock


def _with_memory(target: Target, figures: Figures) -> Figures:
    return {**figures, "resident": resident_bytes(target.group)}


def _medians(turns: list[Figures]) -> Figures:
    return {key: statistics.median(turn[key] for turn in turns) for key in ("p99_ms", "p50_ms", "resident")}
