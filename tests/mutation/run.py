"""Breaks the core in one place after the other, and looks whether a test notices: ``make mutate``, or ``python -m tests.mutation.run``.

All happens in a copy of the tree. First each test is run once, to know which lines it runs; the result is kept in `.venv` until
anything changes. Then each mutant gets those tests that run its line, quickest first, for as long as `--seconds` allows. One that
none of them notices is a survivor: a test is missing, or the code says something twice, or it is equivalent, and then
`equivalent.txt` says why.
"""

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
from pathlib import Path

import attrs
import click
import coverage

from tests.mutation.covering import DATA
from tests.mutation.mutants import Mutant, Mutants

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".venv" / "mutation"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")

_APART = {
    "__init__",
    "authentication",
    "cli",
    "context",
    "methods",
    "options",
    "program",
    "server",
    "sync_context",
    "testing",
}
"""What stands before the core, and what is no more than a table: other tests are for these."""

CORE = sorted(
    f"{folder}/{path.name}"
    for folder in ("actors", "mcpbus")
    for path in (ROOT / folder).glob("*.py")
    if path.stem not in _APART
)
TESTS = [
    f"tests/{name}" for name in ("actors", "bus", "asking", "transport", "tasks", "stores", "properties")
]
WORLDS = "40"
"""How many random worlds `tests/properties` has, of which one round is run for each mutant that nothing else notices."""


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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        digest = hashlib.sha256()
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
                if name.startswith(("actors/", "mcpbus/", "tests/")) and name.endswith(".py"):
                    digest.update(name.encode() + (ROOT / name).read_bytes())
        self.digest = digest.hexdigest()[:16]

    def pytest(self, *arguments: str, seconds: float, **environment: str) -> tuple[int | None, str]:
        """Run pytest in the copy; the exit status is None if it took longer than `seconds`."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        running = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), "WORLDS": WORLDS, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said, _ = running.communicate()
            return None, said
        return running.returncode, said

    def covered(self) -> Covered:
        """Run all tests once, unless that was done for the very same files."""

        kept = KEPT / f"{self.digest}.json"
        if kept.exists():
            read = json.loads(kept.read_text())
            lines = {p: {int(n): tests for n, tests in of.items()} for p, of in read["tests"].items()}
            return Covered(lines, read["seconds"])
        data = self.folder / "coverage.data"
        status, said = self.pytest(
            "-p", "tests.mutation.covering", "--durations=0", "-vv", *TESTS, seconds=3600, **{DATA: str(data)}
        )
        if not data.exists():
            raise click.ClickException(
                f"the tests ended with {status} before anything was broken:\n{said[-3000:]}"
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

    def survives(self, mutant: Mutant, tests: list[str], budget: float) -> bool:
        """Whether no test notices; one that does not come to its end has noticed."""
        if not tests:
            return True
        path = self.folder / mutant.path
        source = path.read_bytes()
        chosen = self.folder / "chosen"
        chosen.write_text("\n".join(tests))
        try:
            path.write_bytes(mutant.applied(source))
            self._forget_compiled(path)
            status, _ = self.pytest("-x", f"@{chosen}", seconds=4 * budget + 20)
        finally:
            path.write_bytes(source)
            self._forget_compiled(path)
        return status == 0

    @staticmethod
    def _forget_compiled(path: Path) -> None:
        # What was compiled in the same second from as many bytes would pass for this file.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


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
@click.option("--sample", type=int, help="How many mutants, drawn at random; all unless given.")
@click.option("--seed", type=int, default=1, show_default=True, help="What they are drawn from.")
@click.option(
    "--seconds", type=float, default=30.0, show_default=True, help="Of tests for each mutant, at most."
)
def main(paths: tuple[str, ...], sample: int | None, seed: int, seconds: float) -> None:
    """Break the core in one place after the other, and say what no test notices."""
    # What a shell runs in the background ignores this signal, and so would the tests of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    known = equivalents()
    mutants = [m for path in paths or CORE for m in Mutants(path, (ROOT / path).read_bytes())]
    mutants = [m for m in mutants if (m.path, m.text, m.change) not in known]
    # In random order: who stops in the midst of it has seen something of everything.
    random.Random(seed).shuffle(mutants)
    mutants = mutants[:sample]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        began = time.monotonic()
        covered = copy.covered()
        click.echo(f"{len(mutants)} mutants, tests mapped in {time.monotonic() - began:.0f} s")
        for number, mutant in enumerate(mutants, 1):
            tests = covered.of(mutant, seconds)
            if copy.survives(mutant, tests, seconds):
                survivors += 1
                click.echo(f"{mutant} | survives {len(tests)} tests")
            elif number % 20 == 0:
                click.echo(f"... {number} of {len(mutants)}")
    click.echo(f"{survivors} of {len(mutants)} survive")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
