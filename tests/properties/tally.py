"""What the random worlds of a test run came to: printed at its end, with the seeds that bring them back.

This is a plugin of pytest, since who prints is another process than the one with the worlds where tests run side by side.
"""

from collections import Counter
from typing import Any

import pytest


class Tally:
    """Counts worlds, and what happened in them."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.worlds = 0
        self.duets = 0
        self.seconds = 0.0
        self.counts: Counter[str] = Counter()

    def add(self, world: Any) -> None:
        self.worlds += 1
        self.counts["steps"] += world.steps
        self.counts["clients"] += len(world.callers)
        self.counts["requests"] += len(world.sents)
        self.counts["messages"] += len(world.receipts)
        self.counts["questions"] += len(world.asked)
        self.counts["retries"] += sum(one.used for one in world.rounds)
        self.counts["tasks"] += len(world.tasks)
        self.counts["returns to streams"] += sum(
            getattr(ear, "after", None) is not None for ear in world.ears
        )

    def told(self) -> dict[str, Any]:
        """What was counted, for another process."""
        return {**vars(self), "counts": dict(self.counts)}

    def hear(self, told: dict[str, Any]) -> None:
        """Count what was counted in another process."""
        self.first = told["first"] if self.first is None else self.first
        self.worlds += told["worlds"]
        self.duets += told["duets"]
        self.seconds += told["seconds"]
        self.counts.update(told["counts"])

    def lines(self) -> list[str]:
        """Say it."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        last = (self.first or 0) + self.worlds - 1
        return [
            f"worlds of seeds {self.first} to {last}: {counts}, in {self.seconds:.1f} s",
            f"duets of the first {self.duets} of these seeds",
            f"the same again: WORLD_SEED={self.first} WORLDS={self.worlds} python -m pytest tests/properties",
        ]


_TALLY = pytest.StashKey[Tally]()


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    """Counts what the random worlds of this run came to."""
    return pytestconfig.stash[_TALLY]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = Tally()


def pytest_sessionfinish(session: pytest.Session) -> None:
    told_to = getattr(session.config, "workeroutput", None)
    if told_to is not None:
        told_to["tally"] = session.config.stash[_TALLY].told()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {}).get("tally")
    if told is not None and told["worlds"]:
        node.config.stash[_TALLY].hear(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[_TALLY].worlds:
        terminalreporter.section("random worlds")
        for line in config.stash[_TALLY].lines():
            terminalreporter.write_line(line)
