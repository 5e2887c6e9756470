"""What a scenario is: one thing that is measured, of all servers alike."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import attrs

from benchmarks.peers.peer import Ability, Peer, Wire
from benchmarks.process import Target

SLICE_SECONDS = 0.1
"""How long one size is measured before it is the next one's turn; short beside the seconds for which a processor may be slow."""

Figures = dict[str, float]
"""What one turn of a server measured, by the keys of the scenario's metrics."""


@attrs.frozen
class Metric:
    """One figure of a scenario.

    Attributes:
        key: Its name in the results.
        title: What the report calls it, with its unit.
        decimals: With how many decimals it is printed.
        more_is_better: Which way is better; None for what is neither.
        scale: What it is multiplied by to be printed.
    """

    key: str
    title: str
    decimals: int = 0
    more_is_better: bool | None = False
    scale: float = 1.0

    def shown(self, value: float) -> str:
        """Return a value as it is printed."""
        return f"{value * self.scale:,.{self.decimals}f}"


RATE = Metric("rate", "requests/s", more_is_better=True)
P50 = Metric("p50_ms", "p50, ms", 2)
P99 = Metric("p99_ms", "p99, ms", 2)
CPU = Metric("cpu_us", "µs of processor time each", 1)
RESIDENT = Metric("resident", "resident, MB", 1, scale=1e-6)
LOADER = Metric("loader", "load's use of its core", 2, more_is_better=None)


class Scenario:
    """One thing that is measured.

    Attributes:
        name: A word for the command line.
        title: Its heading in the report.
        what: How it is measured, in a sentence or two of the report.
        size_title: What its sizes count; empty where it has none.
        sizes: In which sizes, and how many turns each server has in them; of size 0 where it has none. Most of the time is for what has
            an aim.
        others: The same for all servers but mcpbus, where that differs; no sizes that are not in the other.
        costly: Those of the sizes that take too long with interpreted servers: measured of mcpbus and of compiled ones.
        quick_sizes: Those of a quick run.
        in_quick: Whether a quick run of everything has it: another scenario shows nearly the same, or it takes long.
        metrics: What is measured; the first one orders the report and is plotted.
        base: The server that ratios are made to.
        grows: The metric whose growth with the size is told, if any.
        grows_up: Whether a server is started anew for each turn, and measured in all sizes in it, smallest first.
        seconds: How long what is timed goes on in one turn.
    """

    name: str
    title: str
    what: str
    size_title: str = ""
    sizes: Mapping[int, int] = {0: 3}
    others: Mapping[int, int] | None = None
    costly: frozenset[int] = frozenset()
    quick_sizes: Sequence[int] = (0,)
    in_quick: bool = True
    metrics: Sequence[Metric]
    base: str = "mcpbus"
    grows: str | None = None
    grows_up: bool = False
    seconds: float = 1.0

    def cost(self, sizes: Sequence[int], seconds: float) -> float:
        """Return about how many seconds a turn takes, for the estimate."""
        return len(sizes) * (1.1 * seconds + 0.05)


class OfServers(Scenario):
    """What is measured of servers.

    Attributes:
        wires: What they may be spoken to over.
        needs: What they must be able to do.
        environment: What they are started with.
    """

    wires: frozenset[Wire] = frozenset({Wire.HTTP1})
    needs: Ability | None = None
    environment: Mapping[str, str] = {}

    @property
    def environments(self) -> Sequence[Mapping[str, str]]:
        """What the servers are started with that one turn takes."""
        return (self.environment,)

    def measures(self, peer: Peer) -> bool:
        """Return whether a server can be measured in this."""
        can = self.needs is None or self.needs in peer.abilities
        return can and peer.wire in self.wires and not peer.in_parts_only


class Served(OfServers, ABC):
    """What is measured of one process of a server."""

    @abstractmethod
    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Measure one server once; runs in a process of the load.

        Raises:
            WrongAnswer: It did not answer as is expected.
        """


class Beside(OfServers, ABC):
    """What is measured of a server as a ratio to the same server as it is started for short calls.

    Both run on, as they do in other scenarios; the two are one process unless something is set for this one's environment.
    """

    @property
    def environments(self) -> Sequence[Mapping[str, str]]:
        """What the servers are started with that one turn takes."""
        return (self.environment, {})

    @abstractmethod
    def turn(self, target: Target, plain: Target, seconds: float) -> Iterator[tuple[int, Figures]]:
        """Measure one server once; runs in a process of the load.

        Args:
            target: It, as it is started for this.
            plain: It, as it is started for short calls.
            seconds: How long the two are measured, in all.

        Raises:
            WrongAnswer: It did not answer as is expected.
        """


class Apart(OfServers, ABC):
    """What is measured of a server in one process for each size.

    The sizes take turns within a turn, as servers do, so that what else the machine does falls on all of them alike: how a cost
    grows is told by comparing them, and a processor may be half as fast for some seconds.
    """

    grows_up = True

    @abstractmethod
    def turn(self, targets: Mapping[int, Target], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Measure one server once; runs in a process of the load.

        Args:
            targets: What is measured in which size.
            seconds: How long each is, in all.

        Raises:
            WrongAnswer: It did not answer as is expected.
        """


class Inside(Scenario, ABC):
    """What is measured without a server, in a process of its own on the core of the servers."""

    @abstractmethod
    def turn(self, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Measure once."""
