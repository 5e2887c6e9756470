"""What the conformance suite found: read from the files that it leaves, and judged more strictly than it does itself."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

# The suite skips it at once, by its own account until it looks for these notifications on a listen.
SKIPPED = frozenset({"tasks-status-notifications"})

_FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
# Every scenario ends with it, also one that got no further than its first step.
_ALWAYS = "wire-schema-valid"
_GOOD = frozenset({"SUCCESS", "INFO", "SKIPPED"})


@attrs.frozen
class Scenario:
    """What the suite found in one scenario."""

    name: str
    checks: list[dict[str, Any]]

    @property
    def counts(self) -> Counter[str]:
        """How many checks ended in which way."""
        return Counter(check["status"] for check in self.checks)

    @property
    def faults(self) -> list[str]:
        """What is wrong, a line each."""
        found = [
            f"{check['status'].lower()}: {check['id']}: {check.get('errorMessage') or check['description']}"
            for check in self.checks
            if check["status"] not in _GOOD
        ]
        judged = any(check["status"] == "SUCCESS" and check["id"] != _ALWAYS for check in self.checks)
        if not found and not judged and self.name not in SKIPPED:
            found.append("nothing was judged: the suite gave up before its first check")
        return found


def read_scenario(folder: Path) -> Scenario:
    """Read the folder of one scenario.

    Raises:
        ValueError: It is none.
    """
    name = _FOLDER.fullmatch(folder.name)
    if name is None:
        raise ValueError(f"the suite wrote {folder.name!r}, which is not named after a scenario")
    checks = folder / "checks.json"
    # A scenario that raised leaves its folder empty, and so nothing judged.
    return Scenario(name["scenario"], json.loads(checks.read_bytes()) if checks.exists() else [])


def table(found: Mapping[str, list[Scenario]]) -> str:
    """Return the outcome as text: a row for each scenario of each revision, and under it what is wrong."""
    width = max(len(scenario.name) for scenarios in found.values() for scenario in scenarios)
    lines = []
    for revision, scenarios in found.items():
        lines += ["", f"{revision:{width + 2}}  passed  failed  warned  skipped"]
        for scenario in scenarios:
            counts = scenario.counts
            numbers = (counts["SUCCESS"], counts["FAILURE"], counts["WARNING"], counts["SKIPPED"])
            mark = "✗" if scenario.faults else "✓"
            cells = "  ".join(f"{number or '-':>6}" for number in numbers)
            lines.append(f"{mark} {scenario.name:{width}}  {cells}")
            lines += [f"    {fault}" for fault in scenario.faults]
    return "\n".join(lines)
