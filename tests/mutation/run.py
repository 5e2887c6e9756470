"""Breaks a package in one place after the other, and looks whether a test notices: ``make mutate``, or ``python -m tests.mutation.run``.

All happens in copies of the tree. `packages.py` has the table of packages and their tests. First each test of the packages is run
once, to know which lines it runs. The map of each folder of tests is kept in `.venv` until the sources or that folder change. Then
each mutant gets those tests that run its line, quickest first, for as long as `--seconds` allows. One that none of them notices is a
survivor: a test is missing, or the code says something twice, or it is equivalent, and then `equivalent.txt` says why.

Each test has a time limit of several times what it takes when nothing is broken. A mutant that exceeds it is noticed, and is listed:
on a busy machine the limit may end a sound test too.

All tests are collected once. For each mutant the process forks; the child puts the broken code in the place of the function, and
runs the tests in memory: starting takes longer than most tests do.
"""

import contextlib
import gc
import hashlib
import importlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import attrs
import click
import coverage
import pytest

from tests.mutation.covering import DATA
from tests.mutation.mutants import Mutant, Mutants
from tests.mutation.packages import PACKAGES, PROGRAMS, ROOT, package_of
from tests.mutation.patching import CannotPatchError, LiveFunctions

KEPT = ROOT / ".venv" / "mutation"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")

WORLDS = "40"
"""How many random worlds `tests/properties` has, of which one round is run for each mutant that nothing else notices."""

LEAST_LIMIT = 15
"""The time limit of a test that takes no time, in seconds: on a busy machine each may take a while."""

_PYTEST = ["-p", "no:cacheprovider", *(f"--ignore={path}" for path in PROGRAMS)]
_NOT_TRIED = 3


@attrs.frozen
class Covered:
    """Which tests run which line, and how long each of them takes, in seconds."""

    tests: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def of(self, mutant: Mutant, budget: float) -> list[str]:
        """The tests of a mutant, those of its own test file first, then the quickest, as many as there is time for."""
        own = re.compile(rf"/test_(\w+_)?{Path(mutant.path).stem.strip('_').removesuffix('_actor')}")
        tests = self.tests.get(mutant.path, {}).get(mutant.line, [])
        kept, left = [], budget
        for test in sorted(tests, key=lambda name: (not own.search(name), self.seconds.get(name, 1.0))):
            took = self.seconds.get(test, 1.0)
            if took <= left:
                kept.append(test)
                left -= took
        return kept

    def add(self, other: "Covered") -> None:
        """Add the map of other tests."""
        self.seconds.update(other.seconds)
        for path, lines in other.tests.items():
            mine = self.tests.setdefault(path, {})
            for line, tests in lines.items():
                here = mine.setdefault(line, [])
                here.extend(set(tests).difference(here))


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
        self._names = [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]
        for name in self._names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)

    def covered(self, paths: Iterable[str], jobs: int) -> Covered:
        """Read the maps of all tests, and make those that are missing.

        Args:
            paths: The files that matter. Nothing else is kept in memory.
            jobs: How many processes run the tests.
        """
        covered, wanted = Covered({}, {}), set(paths)
        for tests in self._tests:
            kept = self._map(tests)
            if not kept.exists():
                began = time.monotonic()
                self._run(tests, kept, jobs)
                click.echo(f"{tests} mapped in {time.monotonic() - began:.0f} s")
            read = json.loads(kept.read_text())
            names = read["names"]
            lines = {
                path: {int(line): [names[number] for number in numbers] for line, numbers in of.items()}
                for path, of in read["lines"].items()
                if path in wanted
            }
            covered.add(Covered(lines, read["seconds"]))
        return covered

    def _map(self, tests: str) -> Path:
        """Return where the map of some tests is kept, named by the content of these tests and of all sources."""
        digest = hashlib.sha256()
        for name in self._names:
            if name.endswith(".py") and name.startswith(("actors/", "mcpbus/", tests)):
                digest.update(name.encode() + (self.folder / name).read_bytes())
        return KEPT / f"{tests.replace('/', '.')}-{digest.hexdigest()[:16]}.json"

    def _run(self, tests: str, kept: Path, jobs: int) -> None:
        """Run some tests once, and keep which lines each of them runs."""
        data = self.folder / "coverage" / tests.replace("/", ".")
        data.parent.mkdir(exist_ok=True)
        arguments = [
            *_PYTEST,
            "-p",
            "tests.mutation.covering",
            "-n",
            str(jobs),
            "--durations=0",
            "-vv",
            tests,
        ]
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
        if ran.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise click.ClickException(
                f"the tests ended with {ran.returncode} before anything was broken:\n{said[-3000:]}"
            )
        failed = set(re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE))
        if failed:
            click.echo(f"left out, since they fail before anything is broken: {', '.join(sorted(failed))}")
        seconds: dict[str, float] = {}
        for took, test in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(\S.*)$", said, re.MULTILINE):
            seconds[test] = seconds.get(test, 0.0) + float(took)
        numbers: dict[str, int] = {}
        lines: dict[str, dict[int, list[int]]] = {}
        for part in data.parent.glob(f"{data.name}.*"):
            found = coverage.CoverageData(str(part))
            found.read()
            for path in found.measured_files():
                of = lines.setdefault(str(Path(path).relative_to(self.folder)), {})
                for line, names in found.contexts_by_lineno(path).items():
                    ran_by = [numbers.setdefault(n, len(numbers)) for n in names if n and n not in failed]
                    of.setdefault(line, []).extend(ran_by)
        KEPT.mkdir(parents=True, exist_ok=True)
        for old in KEPT.glob(f"{kept.name.rpartition('-')[0]}-*.json"):
            old.unlink()
        kept.write_text(json.dumps({"names": [*numbers], "lines": lines, "seconds": seconds}))

    def run_here(self, plugin: "Breaking") -> None:
        """Collect the tests of the copy in this process, and give them to the plugin. Nothing else can be done in it then."""
        os.chdir(self.folder)
        os.environ["WORLDS"] = WORLDS
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        sys.path[:0] = self.paths
        with Path(os.devnull).open("w") as null, contextlib.redirect_stdout(null):
            status = pytest.main(["-q", *_PYTEST, *self._tests], plugins=[plugin])
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise click.ClickException(f"pytest ended with {status!r}")


class Breaking:
    """A plugin of pytest that runs no tests once they are collected, but breaks one thing after the other.

    Args:
        mutants: What to break, each with the names of the tests that it gets.
        seconds: How long each test takes when nothing is broken, by name. A test that takes much longer is ended.
        jobs: How many at a time.
        say: What is called with each line for people.

    Attributes:
        survivors: How many nothing noticed.
        endless: How many were ended by the time limit, which counts as noticed.
        untried: How many could not be put in the place of what they are made of, of which nothing is known then.
    """

    def __init__(
        self,
        mutants: list[tuple[Mutant, list[str]]],
        seconds: Mapping[str, float],
        jobs: int,
        say: Callable[[str], None],
    ) -> None:
        self.survivors = 0
        self.endless = 0
        self.untried = 0
        self._mutants = mutants
        self._seconds = seconds
        self._jobs = jobs
        self._say = say

    @property
    def failed(self) -> bool:
        """Whether something survives, or it is not known of anything whether it does."""
        return self.survivors > 0 or 0 < len(self._mutants) == self.untried

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Break all, and see."""
        items = {item.nodeid: item for item in session.items}
        for path in {mutant.path for mutant, _ in self._mutants}:
            _import(path)
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
        elif os.waitstatus_to_exitcode(status) == -signal.SIGALRM:
            self.endless += 1
            self._say(f"{mutant} | ended by the time limit of a test")

    def _run_and_exit(self, live: LiveFunctions, mutant: Mutant, tests: list[pytest.Item]) -> NoReturn:
        """Run the tests in this process, of which nothing is left then. One that does not come to its end has noticed."""
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            live.patch(mutant)
            for test, following in pairwise([*tests, None]):
                signal.alarm(LEAST_LIMIT + math.ceil(4 * self._seconds.get(test.nodeid, 1.0)))
                test.ihook.pytest_runtest_protocol(item=test, nextitem=following)
                if test.session.testsfailed:
                    os._exit(1)
            os._exit(0)
        except CannotPatchError:
            os._exit(_NOT_TRIED)
        except BaseException:  # noqa: BLE001 - nothing may go on in two processes
            os._exit(1)


def _import(path: str) -> None:
    """Import a file that the tests may import only when they run, unless something that it needs is not installed."""
    with contextlib.suppress(ImportError):
        importlib.import_module(path.removeprefix("actors/").removesuffix(".py").replace("/", "."))


def equivalents() -> set[tuple[str, str, str]]:
    """The mutants that are known to change nothing: path, line and change."""
    known = set()
    for line in EQUIVALENT.read_text().splitlines():
        if line and not line.startswith("#"):
            path, _, rest = line.partition(" | ")
            text, change, _why = rest.rsplit(" | ", 2)  # the text may have the operator in it
            known.add((path, text, change))
    return known


@click.command()
@click.option(
    "--package",
    "packages",
    multiple=True,
    type=click.Choice([*PACKAGES]),
    help="A package to break, by the tests that the table has for it; all unless given.",
)
@click.option("--file", "paths", multiple=True, help="A file to break, from the root, in place of packages.")
@click.option(
    "--tests",
    "tests",
    multiple=True,
    help="Where to look for tests, from the root; those of the packages unless given.",
)
@click.option("--sample", type=int, help="How many mutants, drawn at random; all unless given.")
@click.option("--seed", type=int, default=1, show_default=True, help="What they are drawn from.")
@click.option(
    "--seconds", type=float, default=30.0, show_default=True, help="Of tests for each mutant, at most."
)
@click.option("--jobs", type=int, default=os.cpu_count(), show_default=True, help="How many at a time.")
def main(  # noqa: PLR0917 - click gives them by name
    packages: tuple[str, ...],
    paths: tuple[str, ...],
    tests: tuple[str, ...],
    sample: int | None,
    seed: int,
    seconds: float,
    jobs: int,
) -> None:
    """Break packages in one place after the other, and list the faults that no test notices."""
    # What a shell runs in the background ignores this signal, and so would the tests of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    known = equivalents()
    files, looked_at = _choose(packages, paths, tests)
    mutants = [m for path in files for m in Mutants(path, (ROOT / path).read_bytes())]
    mutants = [m for m in mutants if (m.path, m.text, m.change) not in known]
    # In random order: who stops in the midst of it has seen something of everything.
    random.Random(seed).shuffle(mutants)
    mutants = mutants[:sample]
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), looked_at)
        began = time.monotonic()
        covered = copy.covered({m.path for m in mutants}, jobs)
        click.echo(f"{len(mutants)} mutants, tests mapped in {time.monotonic() - began:.0f} s")
        chosen = [(m, covered.of(m, seconds)) for m in mutants]
        breaking = Breaking(chosen, covered.seconds, jobs, _say_aside())
        copy.run_here(breaking)
    tried = len(mutants) - breaking.untried
    click.echo(
        f"{breaking.survivors} of {tried} survive, {breaking.endless} ended by a time limit, "
        f"and {breaking.untried} could not be tried"
    )
    sys.exit(1 if breaking.failed else 0)


def _choose(
    packages: tuple[str, ...], paths: tuple[str, ...], tests: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    """Return the files to break, and the tests to run: of the packages, unless files or tests are named."""
    there = [PACKAGES[name] for name in packages or ([] if paths else PACKAGES)]
    files = [*paths, *(path for package in there for path in package.files())]
    there += [package for package in map(package_of, paths) if package is not None]
    if not (looked_at := [*tests] or [*dict.fromkeys(name for package in there for name in package.tests)]):
        raise click.UsageError(f"no package of the table has {', '.join(paths)}: name its tests with --tests")
    return files, looked_at


def _say_aside() -> Callable[[str], None]:
    """Return what writes lines to where standard output goes now, wherever it goes later."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    return lambda line: print(line, file=out)


if __name__ == "__main__":
    main()
