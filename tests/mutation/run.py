"""Breaks the core in one place after the other, and looks whether a test notices: ``make mutate``, or ``python -m tests.mutation.run``.

All happens in copies of the tree. First each test is run once, to know which lines it runs; the result is kept in `.venv` until
anything changes. Then each mutant gets those tests that run its line, quickest first, for as long as `--seconds` allows. One that
none of them notices is a survivor: a test is missing, or the code says something twice, or it is equivalent, and then
`equivalent.txt` says why.

All tests are collected once. For each mutant the process forks; the child puts the broken code in the place of the function, and
runs the tests in memory: starting takes longer than most tests do.
"""

import contextlib
import gc
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import attrs
import click
import coverage
import pytest

from tests.mutation.covering import DATA
from tests.mutation.mutants import Mutant, Mutants
from tests.mutation.patching import CannotPatchError, LiveFunctions

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".venv" / "mutation"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")

_APART = {
    "__init__",
    "bus",
    "cli",
    "context",
    "handlers",
    "limits",
    "http_keywords",
    "methods",
    "program",
    "runner",
    "server",
    "sync_context",
    "testing",
}
"""What stands before the core, and what is no more than a table: other tests are for these."""

_RULES = [
    f"mcpbus/protocol/{name}.py"
    for name in ("bounded_cache", "owners", "principals", "routes", "identity_enum")
]
"""What the core goes by, of the rules that are the protocol's."""

CORE = sorted(
    [
        f"{folder}/{path.name}"
        for folder in (
            "actors/mcpbus_actors",
            "mcpbus",
            "mcpbus/auth",
            "mcpbus/core",
            "mcpbus/core/stores",
            "mcpbus/core/tasks",
            "mcpbus/dispatch",
        )
        for path in (ROOT / folder).glob("*.py")
        if path.stem not in _APART
    ]
    + _RULES
)
TESTS = [
    *(
        f"tests/{name}"
        for name in (
            "actors",
            "auth",
            "bus",
            "asking",
            "client",
            "transport",
            "tasks",
            "stores",
            "properties",
        )
    ),
    "tests/serving/test_isolation.py",
    "tests/test_blocked.py",
    "tests/test_standard_error.py",
]
WORLDS = "40"
"""How many random worlds `tests/properties` has, of which one round is run for each mutant that nothing else notices."""

_NO_CACHE = ["-p", "no:cacheprovider"]
_NOT_TRIED = 3


@attrs.frozen
class Covered:
    """Which tests run which line, and how long each of them takes, in seconds."""

    tests: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def of(self, mutant: Mutant, budget: float) -> list[str]:
        """The tests of a mutant, those of its own test file first, then the quickest, as many as there is time for."""
        own = re.compile(rf"/test_(actor_)?{Path(mutant.path).stem.strip('_').removesuffix('_actor')}")
        tests = self.tests.get(mutant.path, {}).get(mutant.line, [])
        kept, left = [], budget
        for test in sorted(tests, key=lambda name: (not own.search(name), self.seconds.get(name, 1.0))):
            left -= self.seconds.get(test, 1.0)
            if left < 0:
                break
            kept.append(test)
        return kept


class Copy:
    """A copy of the tree, in which things may be broken."""

    def __init__(self, folder: Path, tests: list[str]) -> None:
        self.folder = folder
        self._tests = tests
        self.paths = [str(folder), str(folder / "actors")]
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        digest = hashlib.sha256("\0".join(tests).encode())
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
                if name.endswith(".py") and name.startswith(("actors/", "mcpbus/", *tests)):
                    digest.update(name.encode() + (ROOT / name).read_bytes())
        self.digest = digest.hexdigest()[:16]

    def covered(self) -> Covered:
        """Run all tests once, unless that was done for the very same files."""

        kept = KEPT / f"{self.digest}.json"
        if kept.exists():
            read = json.loads(kept.read_text())
            lines = {p: {int(n): tests for n, tests in of.items()} for p, of in read["tests"].items()}
            return Covered(lines, read["seconds"])
        data = self.folder / "coverage.data"
        arguments = [*_NO_CACHE, "-p", "tests.mutation.covering", "--durations=0", "-vv", *self._tests]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(self.paths), "WORLDS": WORLDS, DATA: str(data)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        said = ran.stdout
        if not data.exists():
            raise click.ClickException(
                f"the tests ended with {ran.returncode} before anything was broken:\n{said[-3000:]}"
            )
        failed = set(re.findall(r"^FAILED (\S+)", said, re.MULTILINE))
        if failed:
            click.echo(f"left out, since they fail before anything is broken: {', '.join(sorted(failed))}")
        seconds: dict[str, float] = {}
        for took, test in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(\S.*)$", said, re.MULTILINE):
            seconds[test] = seconds.get(test, 0.0) + float(took)
        found = coverage.CoverageData(str(data))
        found.read()
        tests = {
            str(Path(path).relative_to(self.folder)): {
                line: [name for name in names if name and name not in failed]
                for line, names in found.contexts_by_lineno(path).items()
            }
            for path in found.measured_files()
        }
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"tests": tests, "seconds": seconds}))
        return Covered(tests, seconds)

    def run_here(self, plugin: "Breaking") -> None:
        """Collect the tests of the copy in this process, and give them to the plugin. Nothing else can be done in it then."""
        os.chdir(self.folder)
        os.environ["WORLDS"] = WORLDS
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[:0] = self.paths
        with Path(os.devnull).open("w") as null, contextlib.redirect_stdout(null):
            status = pytest.main(["-q", *_NO_CACHE, *self._tests], plugins=[plugin])
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise click.ClickException(f"pytest ended with {status!r}")


class Breaking:
    """A plugin of pytest that runs no tests once they are collected, but breaks one thing after the other.

    Args:
        mutants: What to break, each with the names of the tests that it gets.
        budget: For how many seconds those take when nothing is broken, at most.
        jobs: How many at a time.
        say: What is called with each line for people.

    Attributes:
        survivors: How many nothing noticed.
        untried: How many could not be put in the place of what they are made of, of which nothing is known then.
    """

    def __init__(
        self, mutants: list[tuple[Mutant, list[str]]], budget: float, jobs: int, say: Callable[[str], None]
    ) -> None:
        self.survivors = 0
        self.untried = 0
        self._mutants = mutants
        self._seconds = round(4 * budget) + 20
        self._jobs = jobs
        self._say = say

    @property
    def failed(self) -> bool:
        """Whether something survives, or it is not known of anything whether it does."""
        return self.survivors > 0 or 0 < len(self._mutants) == self.untried

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Break all, and see."""
        items = {item.nodeid: item for item in session.items}
        live = LiveFunctions(Path.cwd())
        gc.freeze()  # else each child would copy what it only counts
        running: dict[int, tuple[Mutant, int]] = {}
        for number, (mutant, names) in enumerate(self._mutants, 1):
            tests = [items[name] for name in names if name in items]
            child = os.fork()
            if child == 0:
                self._run_and_exit(live, mutant, tests)
            running[child] = mutant, len(tests)
            while len(running) >= self._jobs:
                self._judge_one(running)
            if number % 100 == 0:
                self._say(f"... {number} of {len(self._mutants)}")
        while running:
            self._judge_one(running)
        return True

    def _judge_one(self, running: dict[int, tuple[Mutant, int]]) -> None:
        child, status = os.wait()
        mutant, tests = running.pop(child)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests left behind
        if status == 0:
            self.survivors += 1
            self._say(f"{mutant} | survives {tests} tests")
        elif os.waitstatus_to_exitcode(status) == _NOT_TRIED:
            self.untried += 1
            self._say(f"{mutant} | cannot be tried")

    def _run_and_exit(self, live: LiveFunctions, mutant: Mutant, tests: list[pytest.Item]) -> NoReturn:
        """Run the tests in this process, of which nothing is left then. One that does not come to its end has noticed."""
        try:
            os.setpgid(0, 0)
            signal.alarm(self._seconds)
            live.patch(mutant)
            for test, following in pairwise([*tests, None]):
                test.ihook.pytest_runtest_protocol(item=test, nextitem=following)
                if test.session.testsfailed:
                    os._exit(1)
            os._exit(0)
        except CannotPatchError:
            os._exit(_NOT_TRIED)
        except BaseException:  # noqa: BLE001 - nothing may go on in two processes
            os._exit(1)


def equivalents() -> set[tuple[str, str, str]]:
    """The mutants that are known to change nothing: path, line and change."""
    known = set()
    for line in EQUIVALENT.read_text().splitlines():
        if line and not line.startswith("#"):
            path, text, change, _why = line.split(" | ")
            known.add((path, text, change))
    return known


@click.command()
@click.option(
    "--file", "paths", multiple=True, help="A file to break, from the root; all of the core unless given."
)
@click.option(
    "--tests",
    "tests",
    multiple=True,
    help="Where to look for tests, from the root; those of the core unless given.",
)
@click.option("--sample", type=int, help="How many mutants, drawn at random; all unless given.")
@click.option("--seed", type=int, default=1, show_default=True, help="What they are drawn from.")
@click.option(
    "--seconds", type=float, default=30.0, show_default=True, help="Of tests for each mutant, at most."
)
@click.option("--jobs", type=int, default=os.cpu_count(), show_default=True, help="How many at a time.")
def main(  # noqa: PLR0917 - click gives them by name
    paths: tuple[str, ...], tests: tuple[str, ...], sample: int | None, seed: int, seconds: float, jobs: int
) -> None:
    """Break the core in one place after the other, and say what no test notices."""
    # What a shell runs in the background ignores this signal, and so would the tests of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    known = equivalents()
    mutants = [m for path in paths or CORE for m in Mutants(path, (ROOT / path).read_bytes())]
    mutants = [m for m in mutants if (m.path, m.text, m.change) not in known]
    # In random order: who stops in the midst of it has seen something of everything.
    random.Random(seed).shuffle(mutants)
    mutants = mutants[:sample]
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), list(tests) or TESTS)
        began = time.monotonic()
        covered = copy.covered()
        click.echo(f"{len(mutants)} mutants, tests mapped in {time.monotonic() - began:.0f} s")
        breaking = Breaking([(m, covered.of(m, seconds)) for m in mutants], seconds, jobs, _say_aside())
        copy.run_here(breaking)
    tried = len(mutants) - breaking.untried
    click.echo(f"{breaking.survivors} of {tried} survive, and {breaking.untried} could not be tried")
    sys.exit(1 if breaking.failed else 0)


def _say_aside() -> Callable[[str], None]:
    """Return what writes lines to where standard output goes now, wherever it goes later."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    return lambda line: print(line, file=out)


if __name__ == "__main__":
    main()
