"""The gain of each speed trick: the processor time of a call without it, over that with it.

A server with the trick and one without it run at the same time, and the load calls one after the other for a short while, in pairs.
Each pair gives one ratio. Whatever else the machine does falls on both alike, and the processor time of the server's own process hardly
depends on it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from statistics import median, quantiles

import attrs

from benchmarks.load import load
from benchmarks.mixture import CLIENTS, mixture
from benchmarks.peers.peer import Peer, Setting
from benchmarks.process import Target, running
from benchmarks.scenarios.part import UNIFORM
from benchmarks.scenarios.parts import PARTS
from benchmarks.traffic import Calls, Traffic
from benchmarks.tricks import Trick

MIXTURE = "mixture"
UNIFORM_CALL = "uniform call"
SLICE_SECONDS = 0.2
WARM_UP_SECONDS = 0.5
LEAST_GAIN = 1.1
"""A trick whose call and whose mixture are both cheaper by less than this factor is to be deleted, unless it is kept."""


@attrs.frozen
class Gain:
    """What was measured of one trick with one kind of call.

    Attributes:
        trick: The trick.
        calls: The calls, in a word.
        ratios: For each pair, the processor time of a call without the trick over that with it.
    """

    trick: Trick
    calls: str
    ratios: Sequence[float]

    @property
    def median(self) -> float:
        """The median ratio."""
        return median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """The lower and the upper quartile of the ratios."""
        if len(self.ratios) < 2:
            return self.ratios[0], self.ratios[0]
        lower, _, upper = quantiles(self.ratios, n=4, method="inclusive")
        return lower, upper


def measure(trick: Trick, peer: Peer, pairs: int) -> Iterator[Gain]:
    """Measure a trick with the mixture, and with the call that gains most from it.

    Args:
        trick: The trick.
        peer: The server.
        pairs: How many pairs of slices each kind of calls gets.

    Raises:
        Absent: A server does not start.
        WrongAnswer: A server answers wrongly, with or without the trick.
    """
    part = next((part for part in PARTS if part.name == trick.call), None)
    mixed = Traffic(calls=mixture(), sessions=CLIENTS)
    for name, traffic, environment in (
        (MIXTURE, mixed, {Setting.STREAMS: "1", Setting.TOOLS: "1"}),
        (
            trick.call or UNIFORM_CALL,
            UNIFORM if part is None else part.traffic,
            {} if part is None else part.environment,
        ),
    ):
        without = {**environment, Setting.WITHOUT: trick.name}
        with ExitStack() as stack:
            targets = [stack.enter_context(running(peer, given)) for given in (environment, without)]
            yield Gain(trick, name, list(_compare(targets, traffic, pairs)))


def _compare(targets: Sequence[Target], traffic: Calls, pairs: int) -> Iterator[float]:
    """Call the server with the trick and the one without it in turn, and yield the ratio of each pair."""
    with ExitStack() as stack:
        slices = [_Slices(target, stack.enter_context(traffic.to(target))) for target in targets]
        for each in slices:
            each.take(WARM_UP_SECONDS)
        for number in range(pairs):
            order = slices if number % 2 == 0 else slices[::-1]
            costs = {each: each.take(SLICE_SECONDS) for each in order}
            yield costs[slices[1]] / costs[slices[0]]


@attrs.frozen(eq=False)
class _Slices:
    """The calls of one server."""

    target: Target
    conversations: Sequence[object]

    def take(self, seconds: float) -> float:
        """Call for a while, and return the processor time of a call in microseconds."""
        return load(self.target, self.conversations, seconds, least=1).figures()["cpu_us"]


def rows(gains: Iterable[Gain]) -> str:
    """Return the table of what was measured, in Markdown."""
    lines = [
        "| trick | what it does | calls | gain: median (quartiles) | pairs |",
        "|---|---|---|---|---|",
    ]
    for gain in gains:
        lower, upper = gain.spread
        what = f"{gain.trick.what} (kept)" if gain.trick.kept else gain.trick.what
        lines.append(
            f"| `{gain.trick.name}` | {what} | {gain.calls} | {gain.median:.2f} ({lower:.2f} to {upper:.2f}) | {len(gain.ratios)} |"
        )
    return "\n".join(lines)


def useless(gains: Iterable[Gain]) -> list[str]:
    """Return the names of the tricks that gain too little in everything that was measured, and need not be kept."""
    best: dict[str, float] = {}
    for gain in gains:
        if not gain.trick.kept:
            best[gain.trick.name] = max(best.get(gain.trick.name, 0.0), gain.spread[1])
    return [name for name, ratio in best.items() if ratio < LEAST_GAIN]


Report = Callable[[Gain], None]
"""Hears of each measurement as soon as it is made."""


def measure_all(tricks: Iterable[Trick], peer: Peer, pairs: int, report: Report) -> list[Gain]:
    """Measure tricks, one after the other."""
    gains = []
    for trick in tricks:
        for gain in measure(trick, peer, pairs):
            report(gain)
            gains.append(gain)
    return gains
