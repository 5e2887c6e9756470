"""What there is to fuzz, as one target a file, and how a target is run: for a while with new seeds, or a short time with the same."""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import attrs
import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy

# What clients in memory, lanes and random worlds are made of is beside the tests that use them most.
sys.path += [
    str(Path(__file__).parents[1] / folder) for folder in ("serving", "properties", "cluster", "proxy")
]

STUCK_SECONDS = 60
"""Of real time, of which a case takes some milliseconds: a case that takes this long hangs, or blocks everybody."""


class StuckError(Exception):
    """A case did not come to its end."""


class Target(Protocol):
    """One thing that is fuzzed.

    Attributes:
        name: What `--only` calls it.
        batch: How many cases one seed stands for: some seconds' worth.
    """

    name: str
    batch: int

    def run(self, seed: int, cases: int | None = None) -> int:
        """Try cases of a seed, a whole batch unless it is said how many, and return how many that were.

        Raises:
            Exception: What the smallest failing case raises, with that case in its text or its notes.
        """


@attrs.frozen
class Drawn:
    """A target whose cases are drawn, and cut down, by hypothesis.

    Attributes:
        name: What `--only` calls it.
        cases: Draws what it is tried with.
        check: Tries it with one case, and raises if anything is wrong.
        batch: How many cases one seed stands for: some seconds' worth.
    """

    name: str
    cases: SearchStrategy[Any]
    check: Callable[[Any], None]
    batch: int

    def run(self, seed: int, cases: int | None = None) -> int:
        """See `Target`."""
        tried = 0

        def check(case: Any) -> None:
            nonlocal tried
            tried += 1
            with bounded():
                self.check(case)

        tries = hypothesis.settings(
            max_examples=cases or self.batch,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=[*HealthCheck],
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            print_blob=False,
        )
        try:
            tries(hypothesis.seed(seed)(hypothesis.given(case=self.cases)(check)))()
        except BaseException as error:
            error.add_note(again(self, seed))
            raise
        return tried


def again(target: Target, seed: int) -> str:
    """How to try the same cases again."""
    return f'again: make fuzz ARGS="--only {target.name} --seed {seed} --batches 1"'


@contextlib.contextmanager
def bounded(seconds: float = STUCK_SECONDS) -> Iterator[None]:
    """Interrupt what takes too long by the clock on the wall: virtual time does not pass in an endless loop."""

    def interrupt(*_: object) -> None:
        raise StuckError(f"a case was not done after {seconds} s")

    former = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def run_for(targets: list[Target], first: int, seconds: float, say: Callable[[str], None]) -> None:
    """Run the targets in turns with one seed after the other until the time is over."""
    ends, seed = time.monotonic() + seconds, first
    while True:
        for target in targets:
            began = time.monotonic()
            tried = target.run(seed)
            say(f"{target.name}, seed {seed}: {tried} cases in {time.monotonic() - began:.1f} s")
            if time.monotonic() > ends:
                return
        seed += 1
