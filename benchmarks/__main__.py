"""The command line: ``make bench``, or ``python -m benchmarks [SCENARIO ...] [--peer NAME ...]``."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks import machine, readme_table
from benchmarks.ablation import measure_all, rows, useless
from benchmarks.peers import PEERS
from benchmarks.peers.peer import Peer
from benchmarks.plan import Plan
from benchmarks.plots import draw
from benchmarks.process import CACHE
from benchmarks.progress import minutes, progress
from benchmarks.report import busy_machine, figures, markdown
from benchmarks.results import FOLDER, Results, Subject, read
from benchmarks.runner import Runner
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.servers import OURS
from benchmarks.tricks import TRICKS

ALL: dict[str, Peer] = {peer.name: peer for peer in (*OURS, *PEERS)}
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


class _Commands(click.Group):
    """Runs what is named, where the first word is no command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _of_a_run(_: click.Context, __: click.Parameter, folder: Path) -> Path:
    """See that a folder holds a run."""
    if not (folder / "bench.json").is_file():
        raise click.BadParameter(f"{folder} has no bench.json. Name the folder that a run has written to.")
    return folder


@click.group(cls=_Commands)
def main() -> None:
    """Measure mcpbus beside its peers."""


@main.command(epilog=f"Scenarios: {', '.join(BY_NAME)}.")
@click.argument("names", metavar="[SCENARIO]...", nargs=-1, type=click.Choice(list(BY_NAME)))
@click.option(
    "--peer", "peers", multiple=True, type=click.Choice(list(ALL)), help="Only this server; may be repeated."
)
@click.option(
    "--quick",
    is_flag=True,
    help="The scenarios that say most, few turns, short ones, small sizes: 383 s in a fresh clone on two cores, with the set-up of peers.",
)
@click.option("--rounds", type=click.IntRange(1), help="Turns of each server.")
@click.option(
    "--size",
    "--connections",
    "sizes",
    type=click.IntRange(1),
    multiple=True,
    help="Only this size; may be repeated.",
)
@click.option(
    "--output",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where the report is written; made if it is not there.",
)
def run(  # noqa: PLR0917  click passes them by name
    names: tuple[str, ...],
    peers: tuple[str, ...],
    quick: bool,
    rounds: int | None,
    sizes: tuple[int, ...],
    output: Path | None,
) -> None:
    """Run scenarios, all if none is named.

    A run of everything that is not quick writes its report to benchmarks/results/, any other to benchmarks/.cache/results/.
    """
    whole = not (names or peers or quick or rounds or sizes)
    scenarios = (
        [BY_NAME[name] for name in names]
        if names
        else [each for each in SCENARIOS if each.in_quick or not quick]
    )
    chosen = [ALL[name] for name in peers] if peers else list(ALL.values())
    plan = Plan(quick, rounds, sizes)
    _check_measured(plan, scenarios, chosen, named=bool(names))
    machine.raise_file_limit()
    folder = output or (FOLDER if whole else CACHE / "results")
    _make(folder)
    others = machine.busy()
    if others > machine.BUSY:
        print(busy_machine(others), file=sys.stderr)
    start = time.monotonic()
    seconds = plan.seconds(scenarios, chosen)
    print(
        f"This takes about {minutes(seconds)}; peers that are not installed yet, some more.", file=sys.stderr
    )
    with machine.on_core(machine.LOAD_CORE), progress(seconds) as step:
        runner = Runner(plan, chosen, step)
        try:
            for scenario in scenarios:
                runner.run(scenario)
                results = Results(
                    machine=machine.describe(others),
                    quick=quick,
                    seconds=time.monotonic() - start,
                    subjects={peer.name: _subject(peer) for peer in chosen},
                    measured=runner.measured,
                    missing=runner.missing,
                    took=runner.took,
                )
                # After each one, so that a run which is cut short leaves what it has: `report` makes a report of it.
                results.save(folder)
        finally:
            runner.close()
        _write(results, scenarios, folder)
        print(figures(results, scenarios))
        print(f"The report is {folder / 'bench.md'}, with its pictures beside it; bench.json has each turn.")
    if any(missing.failed and missing.server.startswith("mcpbus") for missing in runner.missing):
        sys.exit(1)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path), default=FOLDER, callback=_of_a_run)
def report(folder: Path) -> None:
    """Write the report and the pictures of a run anew, from its bench.json."""
    _write(read(folder), list(SCENARIOS), folder)


@main.command()
@click.argument("names", metavar="[TRICK]...", nargs=-1, type=click.Choice(list(TRICKS)))
@click.option("--pairs", type=click.IntRange(1), default=15, show_default=True, help="Pairs of slices.")
def ablation(names: tuple[str, ...], pairs: int) -> None:
    """Measure the gain of each speed trick: the processor time of a call without it, over that with it."""
    machine.raise_file_limit()
    tricks = [TRICKS[name] for name in names] or list(TRICKS.values())
    with machine.on_core(machine.LOAD_CORE):
        gains = measure_all(
            tricks, ALL["mcpbus"], pairs, lambda gain: print(rows([gain]).splitlines()[-1], file=sys.stderr)
        )
    print(rows(gains))
    for name in useless(gains):
        print(f"{name} gains less than a tenth of everything: delete it.")


@main.command()
def table() -> None:
    """Write the table of the report that is committed into the README."""
    readme_table.update(read())


def _check_measured(
    plan: Plan, scenarios: Sequence[Scenario], chosen: Sequence[Peer], *, named: bool
) -> None:
    """Refuse a scenario that was named and measures none of the servers, and a run in which none does: its report would be empty."""
    idle = [each.name for each in scenarios if next(plan.turns(each, chosen), None) is None]
    if idle and (named or len(idle) == len(scenarios)):
        raise click.UsageError(
            f"{', '.join(idle)}: nothing is measured of {', '.join(peer.name for peer in chosen)}, which cannot do what that needs; "
            "name another server with --peer, or none for all that can"
        )


def _make(folder: Path) -> None:
    """Make the folder of a report, before anything is measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise click.BadParameter(
            f"{folder} cannot be a folder: {problem.strerror}. A report is several files; name a folder that is there, or can be made.",
            param_hint="'--output'",
        ) from problem


def _write(results: Results, scenarios: Sequence[Scenario], folder: Path) -> None:
    pictures = draw(results, scenarios, folder)
    (folder / "bench.md").write_text(markdown(results, scenarios, pictures))


def _subject(peer: Peer) -> Subject:
    version = peer.version or machine.version_of(peer.package)
    return Subject(peer.title, peer.language, f"{peer.package} {version}", peer.revision)


if __name__ == "__main__":
    main()
