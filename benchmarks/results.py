"""What was measured: every turn of every server, and what medians, spreads and ratios follow from them."""

import statistics
from pathlib import Path
from typing import Any

import attrs
import msgspec

FOLDER = Path(__file__).parent / "results"
BUSY_LOADER = 0.85
"""Of its core; beyond that, the load bounds what it measures."""
BOUNDED = " (bounded by the load)"
"""Stands behind such figures."""


@attrs.frozen
class Measured:
    """The turns of one server in one scenario and size.

    Attributes:
        scenario: The scenario's name.
        server: The server's name.
        size: The size; 0 where the scenario has none.
        turns: What each turn measured, in their order; those with the same number were made one after the other.
    """

    scenario: str
    server: str
    size: int
    turns: list[dict[str, float]] = attrs.field(factory=list)

    def values(self, key: str) -> list[float]:
        """Return what a metric was in each turn."""
        return [turn[key] for turn in self.turns]

    def median(self, key: str) -> float:
        """Return the median of a metric."""
        return statistics.median(self.values(key))

    def spread(self, key: str) -> tuple[float, float]:
        """Return the lowest and the highest value of a metric."""
        values = self.values(key)
        return min(values), max(values)

    def is_bounded(self) -> bool:
        """Return whether the load had so much to do that the server may be faster than its figure."""
        return "loader" in self.turns[0] and self.median("loader") > BUSY_LOADER

    def ratio(self, base: "Measured", key: str) -> float:
        """Return the median of the ratios to another server's, turn by turn: both saw the same machine."""
        pairs = zip(self.values(key), base.values(key), strict=False)
        return statistics.median(own / its if its else float("nan") for own, its in pairs)


@attrs.frozen
class Missing:
    """A server that has no figures in a scenario, or not all.

    Attributes:
        scenario: The scenario's name.
        server: The server's name.
        reason: Why.
        failed: Whether it was there and did not do as is expected; otherwise it was absent.
    """

    scenario: str
    server: str
    reason: str
    failed: bool


@attrs.frozen
class Subject:
    """Who was measured.

    Attributes:
        title: What the report calls it.
        language: What it is written in.
        package: The package, and its version.
        revision: The revision that its tools are called in.
    """

    title: str
    language: str
    package: str
    revision: str


@attrs.frozen
class Results:
    """A whole run.

    Attributes:
        machine: What it was made on.
        quick: Whether it was a quick one, which is no measure of anything but the suite.
        seconds: How long it took.
        subjects: Who was measured, by name.
        measured: What was measured.
        missing: What was not.
        took: How many of the seconds each scenario took.
    """

    machine: dict[str, Any]
    quick: bool
    seconds: float
    subjects: dict[str, Subject]
    measured: list[Measured]
    missing: list[Missing]
    took: dict[str, float] = attrs.field(factory=dict)

    def of(self, scenario: str) -> list[Measured]:
        """Return what was measured in a scenario."""
        return [measured for measured in self.measured if measured.scenario == scenario]

    def find(self, scenario: str, server: str, size: int = 0) -> Measured | None:
        """Return what was measured of one server."""
        for measured in self.measured:
            if (measured.scenario, measured.server, measured.size) == (scenario, server, size):
                return measured
        return None

    def title(self, server: str) -> str:
        """Return what the report calls a server."""
        subject = self.subjects.get(server)
        return server if subject is None else subject.title

    def save(self, folder: Path) -> None:
        """Write all of it, as ``bench.json``."""
        document = msgspec.json.format(msgspec.json.encode(self), indent=1)
        (folder / "bench.json").write_bytes(document + b"\n")


def read(folder: Path = FOLDER) -> Results:
    """Return a run that was saved.

    Raises:
        FileNotFoundError: None was.
    """
    return msgspec.json.decode((folder / "bench.json").read_bytes(), type=Results)
