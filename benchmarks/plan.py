"""What is run: which servers take which turns, in which order, and about how long that takes."""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from benchmarks.peers.peer import Peer
from benchmarks.scenarios.scenario import Apart, Beside, OfServers, Scenario

INSIDE = "mcpbus"
"""The name under which what is measured without a server is reported."""

QUICK_ROUNDS = 1
QUICK_SECONDS = 0.28
COMPILED = ("Go", "Rust")
# For the estimate: what a start takes, of what is compiled and of the others, and a warm-up.
_COMPILED_START_SECONDS = 0.3
_START_SECONDS = 1.0
_WARM_UP_SECONDS = 0.7


@attrs.frozen
class Turn:
    """One turn of one server in a scenario.

    Attributes:
        peer: The server; None where there is none.
        sizes: What is measured in it, one after the other.
        seconds: About how long it takes.
    """

    peer: Peer | None
    sizes: Sequence[int]
    seconds: float


@attrs.frozen
class Plan:
    """How much is run of each scenario.

    Attributes:
        quick: Few turns, short ones, small sizes.
        rounds: Turns of each server, if not as many as the scenario says.
        sizes: Only these of the sizes, if any are given.
    """

    quick: bool = False
    rounds: int | None = None
    sizes: tuple[int, ...] = ()

    def turns(self, scenario: Scenario, peers: Sequence[Peer]) -> Iterator[Turn]:
        """Yield the turns, in their order: that of the servers, then backwards, and so on.

        What else the machine does falls on all alike.
        """
        counts = {peer: self.counts(scenario, peer) for peer in self._measured(scenario, peers)}
        for sizes in self._passes(scenario):
            for number in range(
                max((counts[peer].get(size, 0) for peer in counts for size in sizes), default=0)
            ):
                for peer in counts if number % 2 == 0 else reversed(counts):
                    due = [size for size in sizes if counts[peer].get(size, 0) > number]
                    if due:
                        yield Turn(peer, due, self._cost(scenario, peer, due))

    def seconds(self, scenarios: Sequence[Scenario], peers: Sequence[Peer]) -> float:
        """Return about how long it all takes, once peers are installed."""
        starts = {
            (turn.peer.name, tuple(environment.items()))
            for scenario in scenarios
            if isinstance(scenario, OfServers) and not scenario.grows_up
            for turn in self.turns(scenario, peers)
            if turn.peer is not None
            for environment in scenario.environments
        }
        turns = sum(turn.seconds for scenario in scenarios for turn in self.turns(scenario, peers))
        return turns + len(starts) * self.start_seconds

    @property
    def start_seconds(self) -> float:
        """About how long the start of a server takes that then runs on."""
        return _START_SECONDS + (0.0 if self.quick else _WARM_UP_SECONDS)

    def seconds_of(self, scenario: Scenario) -> float:
        """Return how long what is timed goes on."""
        return min(QUICK_SECONDS, scenario.seconds) if self.quick else scenario.seconds

    def counts(self, scenario: Scenario, peer: Peer | None) -> Mapping[int, int]:
        """Return how many turns a server has in each size; those that are asked for need not be the scenario's own."""
        is_ours = peer is None or peer.name == INSIDE
        full = dict(scenario.sizes if is_ours or scenario.others is None else scenario.others)
        most = max(full.values())
        if scenario.size_title and self.sizes:
            full = {size: full.get(size, most) for size in self.sizes}
        elif self.quick:
            full = dict.fromkeys(scenario.quick_sizes, min(QUICK_ROUNDS, most))
        elif peer is not None and not is_ours and peer.language not in COMPILED:
            full = {size: count for size, count in full.items() if size not in scenario.costly}
        return full if self.rounds is None else dict.fromkeys(full, self.rounds)

    def _measured(self, scenario: Scenario, peers: Sequence[Peer]) -> list[Peer | None]:
        """Return who is measured.

        In a quick run it is only who starts at once where each turn has a process of its own, and mcpbus where it is measured beside
        itself.
        """
        if not isinstance(scenario, OfServers):
            return [None]
        measured = [peer for peer in peers if scenario.measures(peer)]
        if self.quick and (scenario.grows_up or isinstance(scenario, Beside)):
            others = COMPILED if scenario.grows_up else ()
            quick = [peer for peer in measured if peer.name == INSIDE or peer.language in others]
            measured = quick or measured  # those that were asked for, if they alone were
        return [*measured]

    def _passes(self, scenario: Scenario) -> list[Sequence[int]]:
        """Return the sizes of each pass over the servers: one after the other, or all in one."""
        sizes = sorted(self.counts(scenario, None))
        return [sizes] if scenario.grows_up else [(size,) for size in sizes]

    def _cost(self, scenario: Scenario, peer: Peer | None, sizes: Sequence[int]) -> float:
        starts = len(sizes) if isinstance(scenario, Apart) else scenario.grows_up
        compiled = peer is not None and peer.language in COMPILED
        start = _COMPILED_START_SECONDS if compiled else _START_SECONDS
        return starts * start + scenario.cost(sizes, self.seconds_of(scenario))
