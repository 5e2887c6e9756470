"""Attacks servers in processes of their own: ``make attacks``, or ``python -m tests.attacks.run``.

Each row of `tests.attacks.table` is one attack. Meanwhile an honest client makes a call every 100 ms. The table that is printed has the
peak of resident memory above idle, and the slowest honest answer. An attack fails if it costs more than 200 MB or an honest client more than
a second, and if the server logs more than a megabyte, control characters or an internal error.
"""

import sys
from pathlib import Path

import click
import trio

from tests.attacks.attacked import HEADING, ROOT, suffer
from tests.attacks.table import ATTACKS


@click.command()
@click.option("--only", multiple=True, help="Part of the name of the attacks to run; may be repeated.")
@click.option(
    "--tree",
    type=click.Path(exists=True, path_type=Path),
    default=ROOT,
    help="The checkout whose mcpbus is attacked. [default: this one]",
)
@click.option("--log", type=click.Path(path_type=Path), help="Where the last server's log goes.")
def main(only: tuple[str, ...], tree: Path, log: Path | None) -> None:
    """Attack a server in each way of the table, and print the costs."""
    chosen = [each for name, each in ATTACKS.items() if not only or any(part in name for part in only)]
    faults = 0
    click.echo(HEADING)
    for attack in chosen:
        try:
            outcome = trio.run(suffer, attack, tree.absolute(), log)
        except* Exception as wrong:  # noqa: BLE001 - the other attacks follow
            faults += 1
            click.echo(f"{attack.name}\n    WRONG: {wrong!r}")
        else:
            faults += bool(outcome.faults)
            click.echo(outcome)
    click.echo(f"{len(chosen)} attacks, {faults} of them broke a limit")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
