"""Runs the official conformance suite against the bus, and its client: ``make conformance``, or ``python -m tests.conformance.run``.

The suite is the npm package that `package.json` pins, installed in `.venv` at the first run. Node comes from
the PyPI package of the extra ``conformance``. Every scenario counts, whether or not the suite's own score does, and
so does a warning, and a scenario that judged nothing.
"""

import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click
import trio

from mcpbus.stores import MemoryEventStore
from tests import forwarding
from tests.conformance.client import TURN
from tests.conformance.everything import make_server
from tests.conformance.suite_outcome import Scenario, read_scenarios, table
from tests.npm import NODE, ROOT, NotInstalledError, install

_HERE = Path(__file__).parent
_SUITE = Path("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")

# The two revisions that the suite has sets of requirements for are run with these, which are all that it can judge,
# extensions among them. Of the older ones it knows single scenarios.
SELECTIONS = {
    "2025-03-26": ("--suite", "all", "--spec-version", "2025-03-26"),
    "2025-06-18": ("--suite", "all", "--spec-version", "2025-06-18"),
    "2025-11-25": ("--requirements", "2025-11-25"),
    "2026-07-28": ("--requirements", "2026-07-28"),
}
CLIENT_SELECTIONS = {
    "2025-03-26": ("--suite", "all", "--spec-version", "2025-03-26"),
    "2025-06-18": ("--suite", "all", "--spec-version", "2025-06-18"),
    "2025-11-25": ("--requirements", "2025-11-25"),
    "2026-07-28": ("--requirements", "2026-07-28"),
}
"""The same for what it judges of clients."""
_MOST_SECONDS = 120
"""How long one client may take, most of which it waits for the others: see `tests.conformance.client`."""
_ANNOUNCED = re.compile(r"^Running .* \((?P<count>\d+) scenarios\)", re.MULTILINE)


class CannotRunError(Exception):
    """The suite did not run to its end."""


def judge(revision: str) -> list[Scenario]:
    """Run the suite's scenarios of `revision` against a new server.

    Raises:
        NotInstalledError: npm failed.
        CannotRunError: The suite ended before its last scenario.
    """
    return _judge(_run, SELECTIONS[revision])


def validate_client(revision: str) -> list[Scenario]:
    """Run the suite's scenarios of `revision` that have a server for a client; raises what `judge` does."""
    return _judge(_run_clients, CLIENT_SELECTIONS[revision])


def _judge(run: Callable[[Sequence[str], str], Awaitable[str]], selection: Sequence[str]) -> list[Scenario]:
    with tempfile.TemporaryDirectory() as results:
        said = trio.run(run, selection, results)
        found = read_scenarios(Path(results))
    announced = _ANNOUNCED.search(said)
    if announced is None or int(announced["count"]) != len(found):
        raise CannotRunError(f"the suite ran {len(found)} scenarios, and said:\n{said[-2000:]}")
    return found


async def _run(selection: Sequence[str], results: str) -> str:
    """Run the suite, which writes into the folder `results`, and return what it printed."""
    suite = install(_HERE) / _SUITE
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(_serve)
        # Its exit status follows its own score, which leaves extensions and warnings out.
        ended = await trio.run_process(
            [NODE, suite, "server", "--url", url, "-o", results, *selection],
            capture_stdout=True,
            check=False,
        )
        nursery.cancel_scope.cancel()
    return ended.stdout.decode()


async def _run_clients(selection: Sequence[str], results: str) -> str:
    """Run the suite, which starts a client in each scenario; as `_run` in all else."""
    suite = install(_HERE) / _SUITE
    with tempfile.NamedTemporaryFile() as turn:
        ended = await trio.run_process(
            [
                *(NODE, suite, "client", "--command", f"{sys.executable} -m tests.conformance.client"),
                *("--timeout", str(1000 * _MOST_SECONDS), "-o", results, *selection),
            ],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={**os.environ, TURN: turn.name},
            cwd=ROOT,
        )
    return ended.stdout.decode()


async def _serve(task_status: trio.TaskStatus[list[str]]) -> None:
    await make_server().serve(bind="127.0.0.1:0", event_store=MemoryEventStore(), task_status=task_status)


@click.command()
@click.argument("revisions", nargs=-1, type=click.Choice(list(SELECTIONS)))
@click.option(
    "--forward-all",
    is_flag=True,
    help="Have each request served over a link, as one that has come to another process.",
)
def main(revisions: tuple[str, ...], *, forward_all: bool) -> None:
    """Run the conformance suite at REVISIONS, all of them if none is named, and fail if anything is wrong."""
    if forward_all:
        forwarding.forward_all()
    revisions = revisions or tuple(SELECTIONS)
    runs = {revision: partial(judge, revision) for revision in revisions}
    if not forward_all:
        runs |= {
            f"{revision}, clients": partial(validate_client, revision)
            for revision in revisions
            if revision in CLIENT_SELECTIONS
        }
    try:
        with ThreadPoolExecutor(2) as pool:  # the suite waits much of the time
            found = dict(zip(runs, pool.map(lambda run: run(), runs.values()), strict=True))
    except (CannotRunError, NotInstalledError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(table(found))
    wrong = [scenario for scenarios in found.values() for scenario in scenarios if scenario.faults]
    click.echo(f"\n{len(wrong)} of {sum(map(len, found.values()))} scenarios failed.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
