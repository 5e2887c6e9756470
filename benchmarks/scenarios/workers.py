"""What a second worker adds."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from benchmarks.answers import check_echo
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, Load, load, repeat, together
from benchmarks.machine import LOAD_CORE, SERVER_CORE, idle_seconds
from benchmarks.peers.peer import Peer, Setting
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, RATE, SLICE_SECONDS, Beside, Figures, Metric
from benchmarks.usage import processes

_CORES = SERVER_CORE | LOAD_CORE
_SLICE_SECONDS = 5 * SLICE_SECONDS
"""The system counts idle time in hundredths of a second."""
_CONNECTIONS = 32


@attrs.frozen
class Slice:
    """What was seen while a server was loaded.

    Attributes:
        load: Of the load.
        idle: For how many seconds the cores did nothing.
    """

    load: Load
    idle: float

    @property
    def seconds_each(self) -> float:
        """Seconds of the cores that were there for one call: what it took, and what nothing took."""
        return (self.load.server_seconds + self.idle) / (len(self.load.latencies) + self.load.late)


class Workers(Beside):
    """The same calls by two workers on two cores, by two processes that know nothing of each other, and by one of those."""

    name = "workers"
    title = "Two workers"
    what = (
        "`tools/call` of an echo tool without a session, on 32 connections of one load: to two workers, to two processes that are started "
        "apart, each of which gets 16 of the connections on a port of its own, and to one of these. All may use both cores, beside the "
        "load, and take turns. What two cores allow is what the two processes apart do with them: smaller batches of requests, and a core "
        "that is shared with the load, are theirs as well. The share is the processor time that a call takes of those, over what it takes "
        "of the workers; what both cores were idle counts as taken. So it is what `--workers` costs: what a worker does for a call beyond what a "
        "process alone does, and an uneven spread of connections. What a second process gains at all is `times`, and `apart` without workers."
    )
    sizes = {0: 3}
    in_quick = False
    metrics = (
        Metric("share", "of what the cores allow", 2, more_is_better=True),
        Metric("times", "over the calls of one process", 2, more_is_better=True),
        Metric("apart", "the same of two processes apart", 2, more_is_better=None),
        RATE,
        CPU,
        LOADER,
    )
    seconds = 9.0
    environment = {Setting.WORKERS: "2"}

    @property
    def environments(self) -> Sequence[Mapping[str, str]]:
        """Those of the workers, and of the two processes: both are of one session, as the scheduler treats those alike."""
        return (self.environment, {Setting.TWIN: "1"})

    def measures(self, peer: Peer) -> bool:
        """Return whether a server can be measured in this."""
        return peer.name == self.base

    def turn(self, target: Target, plain: Target, seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call all."""
        twin = attrs.evolve(plain, port=plain.port + 1)
        half = _CONNECTIONS // 2
        ways = [
            (target, _repeat(target, _CONNECTIONS)),
            (plain, [*_repeat(plain, half), *_repeat(twin, half)]),
            (plain, _repeat(plain, _CONNECTIONS)),
        ]
        taken: list[list[Slice]] = [[] for _ in ways]
        with _on_cores(target, _CORES), _on_cores(plain, _CORES):
            for each, conversations in ways:
                load(each, conversations, seconds / 20, least=1)  # what is done once is done now
            for _ in range(max(1, round(seconds / len(ways) / _SLICE_SECONDS))):
                for (each, conversations), slices in zip(ways, taken, strict=True):
                    idle = idle_seconds(_CORES)
                    slices.append(
                        Slice(load(each, conversations, _SLICE_SECONDS), idle_seconds(_CORES) - idle)
                    )
        workers, apart, alone = (_together(slices) for slices in taken)
        figures, rate = workers.load.figures(), alone.load.figures()["rate"]
        yield (
            0,
            {
                **figures,
                "share": share_of_allowed(workers, apart),
                "times": figures["rate"] / rate,
                "apart": apart.load.figures()["rate"] / rate,
            },
        )
        for _, conversations in ways:
            for conversation in conversations:
                conversation.close()


def share_of_allowed(workers: Slice, apart: Slice) -> float:
    """Return which share two workers answered of the calls that two processes apart would have answered in the same time of the cores.

    Args:
        workers: What was seen of the workers.
        apart: What was seen of the others.
    """
    return apart.seconds_each / workers.seconds_each


def _repeat(target: Target, connections: int) -> list[Conversation]:
    return repeat(target, connections, Dialect.echo, check_echo)


def _together(slices: Sequence[Slice]) -> Slice:
    return Slice(together([each.load for each in slices]), sum(each.idle for each in slices))


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
