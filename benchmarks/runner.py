"""Runs scenarios, turn by turn: starts servers, has processes of the load measure them, and keeps what they say."""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import attrs

from benchmarks.answers import WrongAnswer
from benchmarks.load import Conversation, warm_up
from benchmarks.machine import LOAD_CORE, SERVER_CORE, raise_file_limit
from benchmarks.peers.peer import Ability, Absent, Peer, Setting, Wire
from benchmarks.plan import INSIDE, Plan, Turn
from benchmarks.process import Target, running
from benchmarks.progress import Step
from benchmarks.results import Measured, Missing
from benchmarks.scenarios.chatter import repeat_chatter
from benchmarks.scenarios.scenario import Apart, Beside, Figures, Inside, OfServers, Scenario, Served
from benchmarks.wires import repeat_short_call

WARM_UP_CONNECTIONS = 8
CHATTER = 10
TURN_SECONDS = 100.0
"""The most that a turn of a server takes."""

Measure = Callable[[], Iterator[tuple[int, Figures]]]
"""A turn of a scenario, for a process of the load."""


class Runner:
    """Measures, and keeps what was measured and what was not."""

    def __init__(self, plan: Plan, peers: Sequence[Peer], step: Step) -> None:
        self.measured: list[Measured] = []
        self.missing: list[Missing] = []
        self.took: dict[str, float] = {}
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
        begun = time.monotonic()
        lost: set[str] = set()
        for turn in self._plan.turns(scenario, self._peers):
            name = INSIDE if turn.peer is None else turn.peer.name
            begun_now = (
                {_key(name, environment) for environment in scenario.environments} - self._running.keys()
                if isinstance(scenario, OfServers) and not scenario.grows_up
                else ()
            )
            self._step(_words(scenario, turn), turn.seconds + len(begun_now) * self._plan.start_seconds)
            if name not in lost and not self._take_turn(scenario, turn):
                lost.add(name)
        self.took[scenario.name] = time.monotonic() - begun

    def _take_turn(self, scenario: Scenario, turn: Turn) -> bool:
        """Measure once, and return whether that went well."""
        seconds = self._plan.seconds_of(scenario)
        if isinstance(scenario, Apart) and turn.peer is not None:
            return self._take_apart(scenario, turn.peer, turn.sizes)
        if isinstance(scenario, Beside) and turn.peer is not None:
            return self._take_beside(scenario, turn.peer, seconds)
        if isinstance(scenario, Served) and turn.peer is not None:
            with ExitStack() as stack:
                if scenario.grows_up:
                    # It is a new process each time, and the only one that has anything to do.
                    target = stack.enter_context(self._started(scenario, turn.peer, scenario.environment))
                else:
                    target = self._kept(scenario, turn.peer, scenario.environment)
                if target is None:
                    return False
                return self._load(scenario, turn.peer, partial(scenario.turn, target, turn.sizes, seconds))
        if isinstance(scenario, Inside):
            with _processes(SERVER_CORE) as processes:  # a new one for each turn
                taken = processes.submit(_inside, scenario, turn.sizes, seconds).result()
            return self._keep(scenario, INSIDE, *taken)
        raise NotImplementedError

    def _take_apart(self, scenario: Apart, peer: Peer, sizes: Sequence[int]) -> bool:
        targets: dict[int, Target] = {}
        with ExitStack() as stack:
            for size in sizes:
                target = stack.enter_context(self._started(scenario, peer, scenario.environment))
                if target is None:
                    return False
                targets[size] = target
            turn = partial(scenario.turn, targets, self._plan.seconds_of(scenario))
            return self._load(scenario, peer, turn)

    def _take_beside(self, scenario: Beside, peer: Peer, seconds: float) -> bool:
        targets: list[Target] = []
        for environment in scenario.environments:
            target = self._kept(scenario, peer, environment)
            if target is None:
                return False
            targets.append(target)
        return self._load(scenario, peer, partial(scenario.turn, *targets, seconds))

    def _kept(self, scenario: OfServers, peer: Peer, environment: Mapping[str, str]) -> Target | None:
        """Return a server that runs until the end: those of one environment are the same in all scenarios."""
        key = _key(peer.name, environment)
        if key not in self._running:
            target = self._servers.enter_context(self._started(scenario, peer, environment))
            # Over stdio each load starts a server of its own, and warms that up.
            if target is not None and target.warm_up and target.wire is not Wire.STDIO:
                calls_back = Setting.STREAMS in environment and Ability.CHATTER in peer.abilities
                self._loaders.submit(_warm_up, target, calls_back).result()
            self._running[key] = target
        elif self._running[key] is None and not any(
            (missing.scenario, missing.server) == (scenario.name, peer.name) for missing in self.missing
        ):
            # What it is absent for in one scenario, it is absent for in the next.
            known = next(missing for missing in self.missing if missing.server == peer.name)
            self.missing.append(attrs.evolve(known, scenario=scenario.name))
        return self._running[key]

    @contextmanager
    def _started(
        self, scenario: OfServers, peer: Peer, environment: Mapping[str, str]
    ) -> Iterator[Target | None]:
        with ExitStack() as stack:
            try:
                target = stack.enter_context(running(peer, environment))
            except Absent as reason:
                self.missing.append(Missing(scenario.name, peer.name, str(reason), failed=False))
                target = None
            yield target and attrs.evolve(target, warm_up=0 if self._plan.quick else peer.warm_up)

    def _load(self, scenario: Scenario, peer: Peer, measure: Measure) -> bool:
        try:
            taken = self._loaders.submit(_take, measure).result()
        except BrokenProcessPool:
            self._loaders = _processes(LOAD_CORE)
            taken = [], "the process of the load died"
        return self._keep(scenario, peer.name, *taken)

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


def _key(server: str, environment: Mapping[str, str]) -> tuple[object, ...]:
    """Return what makes a server that runs on another one: its name, and what it was started with."""
    return server, *environment.items()


def _words(scenario: Scenario, turn: Turn) -> str:
    """Return what a turn is, for people."""
    words = scenario.title
    if len(turn.sizes) == 1 and turn.sizes[0]:
        words += f" ({turn.sizes[0]:,} {scenario.size_title})"
    return words if turn.peer is None else f"{words}: {turn.peer.title}"


def _processes(core: set[int]) -> ProcessPoolExecutor:
    """Return an executor of one new process on a core."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(core,))


def _begin(core: set[int]) -> None:
    os.sched_setaffinity(0, core)
    raise_file_limit()


def _warm_up(target: Target, calls_back: bool) -> None:
    """Warm a server up; whatever fails here fails in a turn too."""
    with suppress(WrongAnswer, OSError):
        _call(target, repeat_short_call(target, WARM_UP_CONNECTIONS), target.warm_up)
        if calls_back:
            _call(target, repeat_chatter(target, WARM_UP_CONNECTIONS, CHATTER), target.warm_up // CHATTER)


def _call(target: Target, conversations: Sequence[Conversation], calls: int) -> None:
    warm_up(target, conversations, calls)
    for conversation in conversations:
        conversation.close()


def _take(measure: Measure) -> tuple[list[tuple[int, Figures]], str | None]:
    # Whatever waits in there waits for a server's next byte, and a server may send comments for ever.
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, TURN_SECONDS)
    try:
        return _collect(measure())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _give_up(*_: object) -> None:
    raise WrongAnswer(f"no end within {TURN_SECONDS:g} s")


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
