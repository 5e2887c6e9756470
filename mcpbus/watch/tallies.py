"""Counts of requests by method and name, and the newest ended requests of each kind."""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

import attrs

from mcpbus.core.request_context import Life

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Of the histograms, in seconds; those that OpenTelemetry advises for MCP."""
UNKNOWN: Final = "(unknown)"
OTHER: Final = "(other)"
_MOST_LABELS: Final = 1_000
_NEWEST: Final = 8
_RUSH_SECONDS: Final = 1.0
"""Of calls that end alike, at most eight are kept in so many seconds: they are too many to be looked at."""

Label = tuple[str, str | None]


@attrs.define(eq=False)
class Tally:
    """How often requests of one method and name were made, and how long they took.

    Attributes:
        label: Method and name.
        calls: How many have ended.
        seconds: How long they took together.
        longest: How long the longest took, in seconds.
        counts: How many took at most as long as each of `BOUNDS`, and not as long as the one before; the last are longer.
        failures: How many failed, by `Life.error`, or by their outcome.
        kept: The newest that ended, by outcome.
    """

    label: Label
    calls: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    counts: list[int] = attrs.Factory(lambda: [0] * (len(BOUNDS) + 1))
    failures: dict[str, int] = attrs.Factory(dict)
    kept: dict[str, deque[Life]] = attrs.Factory(dict)

    def add(self, life: Life, seconds: float, outcome: str) -> bool:
        """Count a request that has ended.

        Returns:
            Whether it is to be kept.
        """
        self.calls += 1
        self.seconds += seconds
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        if seconds > self.longest:  # noqa: PLR1730 - a call of `max` takes longer
            self.longest = seconds
        ring = self.kept.get(outcome)
        if ring is None or len(ring) < _NEWEST:
            return True
        oldest = ring[0]
        return life.began + seconds - oldest.began - (oldest.seconds or 0.0) > _RUSH_SECONDS


class Tallies:
    """The tallies of a bus.

    Args:
        kept: How many ended requests are kept at most.
    """

    def __init__(self, kept: int) -> None:
        self.by_label: dict[Label, Tally] = {}
        self._most = kept
        self._rings: OrderedDict[tuple[Label, str], deque[Life]] = OrderedDict()
        self.kept = 0

    def __iter__(self) -> Iterator[Life]:
        """Iterate over the requests that are kept."""
        return (life for ring in self._rings.values() for life in ring)

    def of(self, method: str, name: str | None) -> Tally:
        """Return the tally of a label, in which there are not too many names."""
        tally = self.by_label.get((method, name))
        if tally is None:
            label = (method, name)
            if len(self.by_label) >= _MOST_LABELS:
                label = (OTHER, None)
            tally = self.by_label.setdefault(label, Tally(label))
        return tally

    def fail(self, tally: Tally, error: str) -> None:
        """Count a failure."""
        if error not in tally.failures and len(tally.failures) >= _NEWEST * _NEWEST:
            error = OTHER
        tally.failures[error] = tally.failures.get(error, 0) + 1

    def keep(self, tally: Tally, life: Life, outcome: str) -> None:
        """Keep a request that has ended; one of those goes that end most seldom, if there are too many."""
        key = tally.label, outcome
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = tally.kept[outcome] = deque()
        self._rings.move_to_end(key)
        ring.append(life)
        self.kept += 1
        if len(ring) > _NEWEST:
            ring.popleft()
            self.kept -= 1
        elif self.kept > self._most:
            oldest, first = next(iter(self._rings.items()))
            first.popleft()
            self.kept -= 1
            if not first:
                del self._rings[oldest]
                del self.by_label[oldest[0]].kept[oldest[1]]
