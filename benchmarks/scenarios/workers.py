"""What a second worker adds."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from benchmarks.answers import check_echo
from benchmarks.dialect import Dialect
from benchmarks.load import Load, load, repeat, together
from benchmarks.machine import LOAD_CORE, SERVER_CORE, idle_seconds
from benchmarks.peers.peer import Peer
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, RATE, SLICE_SECONDS, Beside, Figures, Metric
from benchmarks.usage import processes

_CORES = SERVER_CORE | LOAD_CORE
_SLICE_SECONDS = 5 * SLICE_SECONDS
"""The system counts idle time in hundredths of a second."""
_CONNECTIONS = 32


@attrs.frozen
class _Slice:
    load: Load
    idle: float


class Workers(Beside):
    """The same calls by two workers on two cores, and by one process."""

    name = "workers"
    title = "Two workers"
    what = (
        "`tools/call` of an echo tool without a session, on 32 connections: two workers that may use both cores, beside the load, and one "
        "process that may too. The two take turns. The share is that of the calls that could have been: the processor time that was there "
        "for the workers, which is what they took and what both cores were idle, over what a call takes of one process. So the load, "
        "and what else the machine does, are not held against them; that a call takes more, or that a core waits, is."
    )
    sizes = {0: 3}
    in_quick = False
    metrics = (
        Metric("share", "of what the cores allow", 2, more_is_better=True),
        Metric("times", "over the calls of one process", 2, more_is_better=True),
        RATE,
        CPU,
        LOADER,
    )
    seconds = 6.0
    environment = {"BENCH_WORKERS": "2"}

    def measures(self, peer: Peer) -> bool:
        """Return whether a server can be measured in this."""
        return peer.name == self.base

    def turn(self, target: Target, plain: Target, seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call both."""
        ways = [(each, repeat(each, _CONNECTIONS, Dialect.echo, check_echo)) for each in (target, plain)]
        taken: list[list[_Slice]] = [[], []]
        with _on_cores(target, _CORES), _on_cores(plain, _CORES):
            for each, conversations in ways:
                load(each, conversations, seconds / 20, least=1)  # what is done once is done now
            for _ in range(max(1, round(seconds / 2 / _SLICE_SECONDS))):
                for (each, conversations), slices in zip(ways, taken, strict=True):
                    idle = idle_seconds(_CORES)
                    slices.append(
                        _Slice(load(each, conversations, _SLICE_SECONDS), idle_seconds(_CORES) - idle)
                    )
        two, one = (together([each.load for each in slices]) for slices in taken)
        alone = one.figures()
        figures = two.figures()
        share = share_of_allowed(two, one, sum(each.idle for each in taken[0]))
        yield 0, {**figures, "share": share, "times": figures["rate"] / alone["rate"]}
        for _, conversations in ways:
            for conversation in conversations:
                conversation.sock.close()


def share_of_allowed(two: Load, one: Load, idle: float) -> float:
    """Return which share two workers answered of the calls that could have been.

    Args:
        two: What was seen of them.
        one: What was seen of one process.
        idle: For how many seconds the cores did nothing meanwhile.
    """
    alone = one.server_seconds / (len(one.latencies) + one.late)
    return (len(two.latencies) + two.late) * alone / (two.server_seconds + idle)


@contextmanager
def _on_cores(target: Target, cores: set[int]) -> Iterator[None]:
    """Let a server use these cores for a while, each thread of all its processes, and then the one of servers again."""
    _move(target, cores)
    try:
        yield
    finally:
        _move(target, SERVER_CORE)


def _move(target: Target, cores: set[int]) -> None:
    for process in processes(target.group):
        for thread in Path(f"/proc/{process}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)
