"""What the conformance suite found: read from the files that it leaves, and judged more strictly than it does itself."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import attrs

# The suite skips it at once, by its own account until it looks for these notifications on a listen.
SKIPPED = frozenset({"tasks-status-notifications"})

# What clients do not do. Each must fail: one that passes is left out no more.
LEFT_OUT = {
    "auth/dpop*": "the client has no DPoP",
    "auth/enterprise-managed-authorization": "the client exchanges no tokens of other issuers",
    "auth/wif-jwt-bearer": "the client brings no tokens of workloads",
}

_FOLDER = re.compile(r"(?:server-)?(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
# Every scenario ends with it, also one that got no further than its first step.
_ALWAYS = "wire-schema-valid"
_GOOD = frozenset({"SUCCESS", "INFO", "SKIPPED"})


# What a client prints when it has done all that a scenario wants, and it ended as it should: the suite looks at no exit status.
FINISHED = "The scenario ended as it should."


@attrs.frozen
class Scenario:
    """What the suite found in one scenario."""

    name: str
    checks: list[dict[str, Any]]
    failure: str = ""
    """What a client said that did not get to the end."""

    @property
    def counts(self) -> Counter[str]:
        """How many checks ended in which way."""
        return Counter(check["status"] for check in self.checks)

    @property
    def left_out(self) -> str:
        """Why it is expected to fail; empty where it is not."""
        return next((why for pattern, why in LEFT_OUT.items() if fnmatch(self.name, pattern)), "")

    @property
    def faults(self) -> list[str]:
        """What is wrong, a line each; nothing, if it is left out and something is."""
        found = self._found()
        if self.left_out:
            return [] if found else ["it is left out, and yet nothing is wrong"]
        return found

    def _found(self) -> list[str]:
        found = [
            f"{check['status'].lower()}: {check['id']}: {check.get('errorMessage') or check['description']}"
            for check in self.checks
            if check["status"] not in _GOOD
        ]
        if self.failure:
            found.append(f"the client failed: {self.failure}")
        judged = any(check["status"] == "SUCCESS" and check["id"] != _ALWAYS for check in self.checks)
        if not found and not judged and self.name not in SKIPPED:
            found.append("nothing was judged: the suite gave up before its first check")
        return found


def read_scenarios(results: Path) -> list[Scenario]:
    """Read all scenarios of a run, the first one first. Those with a slash in their names have a folder in a folder.

    Raises:
        ValueError: Something else was written.
    """
    folders = [
        inner
        for outer in results.iterdir()
        for inner in (outer.iterdir() if _FOLDER.fullmatch(outer.name) is None else [outer])
    ]
    return [
        read_scenario(folder, results)
        for folder in sorted(folders, key=lambda folder: folder.stat().st_ctime_ns)
    ]


def read_scenario(folder: Path, results: Path) -> Scenario:
    """Read the folder of one scenario.

    Raises:
        ValueError: It is none.
    """
    written = folder.relative_to(results).as_posix()
    name = _FOLDER.fullmatch(written)
    if name is None:
        raise ValueError(f"the suite wrote {written!r}, which is not named after a scenario")
    checks, said = folder / "checks.json", folder / "stdout.txt"
    failure = ""
    if said.exists() and FINISHED not in said.read_text().splitlines():
        failure = ["it ended early, and said nothing", *(folder / "stderr.txt").read_text().splitlines()][-1]
    # A scenario that raised leaves its folder empty, and so nothing judged.
    return Scenario(name["scenario"], json.loads(checks.read_bytes()) if checks.exists() else [], failure)


def table(found: Mapping[str, list[Scenario]]) -> str:
    """Return the outcome as text: a row for each scenario of each run, and under it what is wrong."""
    width = max(len(scenario.name) for scenarios in found.values() for scenario in scenarios)
    lines = []
    for run, scenarios in found.items():
        lines += ["", f"{run:{width + 2}}  passed  failed  warned  skipped"]
        for scenario in scenarios:
            counts = scenario.counts
            numbers = (counts["SUCCESS"], counts["FAILURE"], counts["WARNING"], counts["SKIPPED"])
            mark = "✗" if scenario.faults else "-" if scenario.left_out else "✓"
            cells = scenario.left_out or "  ".join(f"{number or '-':>6}" for number in numbers)
            lines.append(f"{mark} {scenario.name:{width}}  {cells}")
            lines += [f"    {fault}" for fault in scenario.faults]
    return "\n".join(lines)
