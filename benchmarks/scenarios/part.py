"""What one thing costs that distinguishes the calls of the real world from the uniform one."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.calls import Call
from benchmarks.load import Load, load, together
from benchmarks.peers.peer import Ability, Peer
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, RATE, SLICE_SECONDS, Beside, Figures, Metric
from benchmarks.traffic import CONNECTIONS, Calls, Traffic

UNIFORM = Traffic(calls=(Call(),))


class Part(Beside):
    """One of the things, alone: its calls and uniform ones take turns of a slice of time each.

    Args:
        name: A word for the command line.
        title: What the report calls it.
        traffic: Its calls.
        environment: What the server is started with.
        in_quick: Whether a quick run of everything has it.
        aim: The most that a call should cost of mcpbus, in processor time over the uniform one.
        peers: Who is measured beside mcpbus, and the least that its rate should be over theirs.
        seconds: How long a turn is.
        against: The calls that take turns with its own, if not uniform ones, and their words in the report.
        needs: What a peer must be able to do to be measured in this beside those, in one turn, since there is no aim.
    """

    what = (
        f"`tools/call` on {CONNECTIONS} connections that differs in one thing from the uniform call, which `short-call` makes. The two "
        "take turns, a slice of time each, and the ratio is that of the processor time which one call takes."
    )
    metrics = (
        Metric("times", "over the uniform call", 2),
        CPU,
        Metric("uniform_us", "the uniform call, µs", 1, more_is_better=None),
        RATE,
        LOADER,
    )

    def __init__(
        self,
        name: str,
        title: str,
        traffic: Calls,
        *,
        environment: Mapping[str, str] | None = None,
        aim: float | None = None,
        in_quick: bool = True,
        peers: Mapping[str, float] | None = None,
        seconds: float = 1.6,
        against: tuple[Calls, str] = (UNIFORM, "the uniform call"),
        needs: Ability | None = None,
    ) -> None:
        self.name = name
        self.title = title
        self.environment = environment or {}
        self.aim = aim
        self.in_quick = in_quick
        self.peers = peers or {}
        self.needs = needs
        self.others = None if needs is None else {0: 1}
        self.seconds = seconds
        self.traffic = traffic
        self._against, self.base_title = against

    def measures(self, peer: Peer) -> bool:
        """Return whether a server can be measured in this."""
        return peer.name == self.base or peer.name in self.peers or self.needs in peer.abilities

    def cost(self, sizes: Sequence[int], seconds: float) -> float:
        """Return about how many seconds a turn takes."""
        return super().cost(sizes, seconds) + self.traffic.opening_seconds

    def turn(self, target: Target, plain: Target, seconds: float) -> Iterator[tuple[int, Figures]]:
        """Make its calls and uniform ones."""
        with self.traffic.to(target) as own, self._against.to(plain) as uniform:
            # Each of its calls has been made before: what comes for the first time is not what is measured.
            load(target, own, seconds / 20, least=self.traffic.each)
            load(plain, uniform, seconds / 20, least=1)
            its: list[Load] = []
            others: list[Load] = []
            for _ in range(max(1, round(seconds / 2 / SLICE_SECONDS))):
                its.append(load(target, own, min(seconds / 2, SLICE_SECONDS), least=1))
                others.append(load(plain, uniform, min(seconds / 2, SLICE_SECONDS), least=1))
        figures, uniform_us = together(its).figures(), together(others).figures()["cpu_us"]
        yield 0, {**figures, "uniform_us": uniform_us, "times": figures["cpu_us"] / uniform_us}
