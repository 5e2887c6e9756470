"""Fuzzes: ``make fuzz``, or ``python -m tests.fuzz.run``.

Each target is run in turn with a seed that stands for some seconds' worth of cases, then with the next seed, until the time is
over. The first failure ends it: it is cut down to the smallest case that still fails, and shown with the command that brings it back.
"""

import secrets
import sys
import traceback

import click

from tests.fuzz.fuzz_target import run_for
from tests.fuzz.fuzz_targets import TARGETS


@click.command()
@click.option("--seed", type=int, help="The first seed; a random one unless given.")
@click.option("--minutes", type=float, default=5.0, show_default=True, help="How long to go on.")
@click.option("--batches", type=int, help="How many seeds to go through, instead of how long to go on.")
@click.option("--only", type=click.Choice([*TARGETS]), multiple=True, help="The targets; all unless given.")
def main(seed: int | None, minutes: float, batches: int | None, only: tuple[str, ...]) -> None:
    """Try what no test has thought of."""
    first = secrets.randbelow(10**6) if seed is None else seed
    targets = [TARGETS[name] for name in only or TARGETS]
    click.echo(f"from seed {first}: {', '.join(target.name for target in targets)}")
    try:
        if batches is None:
            run_for(targets, first, 60 * minutes, click.echo)
        else:
            for number in range(first, first + batches):
                for target in targets:
                    target.run(number)
    except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
        click.echo(traceback.format_exc())
        sys.exit(1)


if __name__ == "__main__":
    main()
