"""What the random worlds of a test run came to: printed at its end, with the seeds that bring them back."""

from collections import Counter
from typing import Any


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

    def lines(self) -> list[str]:
        """Say it."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        last = (self.first or 0) + self.worlds - 1
        return [
            f"worlds of seeds {self.first} to {last}: {counts}, in {self.seconds:.1f} s",
            f"duets of the first {self.duets} of these seeds",
            f"the same again: WORLD_SEED={self.first} WORLDS={self.worlds} python -m pytest tests/properties",
        ]
