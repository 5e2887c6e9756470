"""Runs scenarios: servers take turns, in one order and then in the other, so that what else the machine does falls on all alike."""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

import attrs

from benchmarks.answers import WrongAnswer, check_echo
from benchmarks.dialect import Dialect
from benchmarks.load import load, repeat
from benchmarks.machine import LOAD_CORE, SERVER_CORE, raise_file_limit
from benchmarks.peers.peer import Absent, Peer, Wire
from benchmarks.process import Target, running
from benchmarks.results import Measured, Missing
from benchmarks.scenarios.scenario import Figures, Inside, Scenario, Served

_Item = TypeVar("_Item")

QUICK_ROUNDS = 2
QUICK_SECONDS = 0.4
WARM_UP_SECONDS = 3.0
WARM_UP_CONNECTIONS = 8


@attrs.frozen
class Plan:
    """What is run of each scenario.

    Attributes:
        quick: Few turns, short ones, small sizes.
        rounds: Turns of each server, if not as many as the scenario says.
        sizes: Only these of the sizes, if any are given.
    """

    quick: bool = False
    rounds: int | None = None
    sizes: tuple[int, ...] = ()

    def rounds_of(self, scenario: Scenario) -> int:
        """Return how many turns each server has."""
        return self.rounds or (min(QUICK_ROUNDS, scenario.rounds) if self.quick else scenario.rounds)

    def seconds_of(self, scenario: Scenario) -> float:
        """Return how long what is timed goes on."""
        return min(QUICK_SECONDS, scenario.seconds) if self.quick else scenario.seconds

    def sizes_of(self, scenario: Scenario) -> tuple[int, ...]:
        """Return the sizes; those that are asked for need not be the scenario's own."""
        if scenario.size_title and self.sizes:
            return self.sizes
        return tuple(scenario.quick_sizes if self.quick else scenario.sizes)

    def passes_of(self, scenario: Scenario) -> list[tuple[int, ...]]:
        """Return the sizes of each turn: one after the other, or all in one."""
        sizes = self.sizes_of(scenario)
        return [sizes] if scenario.grows_up else [(size,) for size in sizes]

    def turns(self, scenarios: Iterable[Scenario], peers: Sequence[Peer]) -> int:
        """Return how many turns there will be, if no server is absent."""
        return sum(
            len(self.passes_of(scenario)) * self.rounds_of(scenario) * len(subjects(scenario, peers))
            for scenario in scenarios
        )


def subjects(scenario: Scenario, peers: Sequence[Peer]) -> list[str]:
    """Return the names of who is measured in a scenario."""
    if isinstance(scenario, Served):
        return [peer.name for peer in peers if scenario.measures(peer)]
    return [INSIDE]


INSIDE = "mcpbus"
"""The name under which what is measured without a server is reported."""


class Runner:
    """Measures, and keeps what was measured and what was not."""

    def __init__(self, plan: Plan, peers: Sequence[Peer], step: Callable[[str], None]) -> None:
        self.measured: list[Measured] = []
        self.missing: list[Missing] = []
        self._plan = plan
        self._peers = peers
        self._step = step
        self._loaders = _processes(LOAD_CORE)
        self._servers = ExitStack()
        self._running: dict[tuple[object, ...], Target | None] = {}

    def close(self) -> None:
        """End the servers, and the processes of the load."""
        self._servers.close()
        self._loaders.shutdown(cancel_futures=True)

    def run(self, scenario: Scenario) -> None:
        """Run one scenario."""
        if isinstance(scenario, Inside):
            self._run_inside(scenario)
        elif isinstance(scenario, Served):
            peers = [peer for peer in self._peers if scenario.measures(peer)]
            if scenario.grows_up:
                self._run_one_by_one(scenario, peers)
            else:
                self._run_side_by_side(scenario, peers)

    def _run_inside(self, scenario: "Inside") -> None:
        sizes, seconds = self._plan.sizes_of(scenario), self._plan.seconds_of(scenario)
        for _ in range(self._plan.rounds_of(scenario)):
            self._step(scenario.title)
            with _processes(SERVER_CORE) as processes:  # a new one for each turn
                taken = processes.submit(_inside, scenario, sizes, seconds).result()
            self._keep(scenario, INSIDE, *taken)

    def _run_one_by_one(self, scenario: Served, peers: Sequence[Peer]) -> None:
        """Measure servers that grow: each is a new process, alone on the machine."""
        sizes, seconds = self._plan.sizes_of(scenario), self._plan.seconds_of(scenario)
        lost: set[str] = set()
        for order in _orders(peers, self._plan.rounds_of(scenario)):
            for peer in order:
                self._step(f"{scenario.title}: {peer.title}")
                if peer.name in lost:
                    continue
                with self._started(scenario, peer) as target:
                    if target is None or not self._turn(scenario, target, sizes, seconds):
                        lost.add(peer.name)

    def _run_side_by_side(self, scenario: Served, peers: Sequence[Peer]) -> None:
        """Measure servers that all run, and of which one at a time has something to do."""
        seconds = self._plan.seconds_of(scenario)
        targets = [(peer, self._kept(scenario, peer)) for peer in peers]
        lost = {peer.name for peer, target in targets if target is None}
        for sizes in self._plan.passes_of(scenario):
            for order in _orders(targets, self._plan.rounds_of(scenario)):
                for peer, target in order:
                    size = f" ({sizes[0]:,} {scenario.size_title})" if scenario.size_title else ""
                    self._step(f"{scenario.title}{size}: {peer.title}")
                    if peer.name in lost:
                        continue
                    if target is not None and not self._turn(scenario, target, sizes, seconds):
                        lost.add(peer.name)

    def _kept(self, scenario: Served, peer: Peer) -> Target | None:
        """Return a server that runs until the end: those of one environment are the same in all scenarios."""
        key = (peer.name, tuple(scenario.environment.items()))
        if key not in self._running:
            target = self._servers.enter_context(self._started(scenario, peer))
            if target is not None and not self._plan.quick:
                self._loaders.submit(_warm_up, target).result()
            self._running[key] = target
        elif (
            self._running[key] is None
        ):  # what it is absent for in one scenario, it is absent for in the next
            known = next(missing for missing in self.missing if missing.server == peer.name)
            self.missing.append(attrs.evolve(known, scenario=scenario.name))
        return self._running[key]

    @contextmanager
    def _started(self, scenario: Served, peer: Peer) -> Iterator[Target | None]:
        with ExitStack() as stack:
            try:
                target = stack.enter_context(running(peer, scenario.environment))
            except Absent as reason:
                self.missing.append(Missing(scenario.name, peer.name, str(reason), failed=False))
                target = None
            yield target

    def _turn(self, scenario: Served, target: Target, sizes: Sequence[int], seconds: float) -> bool:
        try:
            taken = self._loaders.submit(_take, scenario, target, sizes, seconds).result()
        except BrokenProcessPool:
            self._loaders = _processes(LOAD_CORE)
            taken = [], "the process of the load died"
        return self._keep(scenario, target.name, *taken)

    def _keep(
        self, scenario: Scenario, server: str, figures: list[tuple[int, Figures]], failure: str | None
    ) -> bool:
        for size, taken in figures:
            for measured in self.measured:
                if (measured.scenario, measured.server, measured.size) == (scenario.name, server, size):
                    break
            else:
                measured = Measured(scenario.name, server, size)
                self.measured.append(measured)
            measured.turns.append(taken)
        if failure is not None:
            self.missing.append(Missing(scenario.name, server, failure, failed=True))
        return failure is None


def _orders(items: Sequence[_Item], rounds: int) -> Iterator[Sequence[_Item]]:
    """Yield items in their order and backwards, in turns."""
    for number in range(rounds):
        yield items if number % 2 == 0 else items[::-1]


def _processes(core: set[int]) -> ProcessPoolExecutor:
    """Return an executor of one new process on a core."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(core,))


def _begin(core: set[int]) -> None:
    os.sched_setaffinity(0, core)
    raise_file_limit()


def _warm_up(target: Target) -> None:
    """Call for a while, as compilers that work while a program runs need it; whatever fails here fails in a turn too."""
    if target.wire is Wire.HTTP1:
        with suppress(WrongAnswer, OSError):
            conversations = repeat(target, WARM_UP_CONNECTIONS, Dialect.echo, check_echo)
            load(target, conversations, WARM_UP_SECONDS)
            for conversation in conversations:
                conversation.sock.close()


def _take(
    scenario: Served, target: Target, sizes: Sequence[int], seconds: float
) -> tuple[list[tuple[int, Figures]], str | None]:
    return _collect(scenario.turn(target, sizes, seconds))


def _inside(
    scenario: Inside, sizes: Sequence[int], seconds: float
) -> tuple[list[tuple[int, Figures]], str | None]:
    return _collect(scenario.turn(sizes, seconds))


def _collect(figures: Iterator[tuple[int, Figures]]) -> tuple[list[tuple[int, Figures]], str | None]:
    """Return what was measured, and why not all of it."""
    taken: list[tuple[int, Figures]] = []
    try:
        taken.extend(figures)
    except WrongAnswer as reason:
        return taken, str(reason)
    except Exception as reason:  # noqa: BLE001  one failure is no reason to lose what others were measured in
        traceback.print_exception(reason)
        return taken, f"{type(reason).__name__}: {reason}"
    return taken, None
