"""The report of a run: one table of everything that was measured, and what it was measured on."""

import datetime as dt
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attrs
import msgspec

PACKAGES = ("mcpbus", "trio", "hypercorn", "h11", "msgspec", "attrs")
RESULTS = Path(__file__).parent / "results"


@attrs.frozen
class Row:
    """One figure.

    Attributes:
        what: What was measured.
        figure: The figure, with its unit.
        beside: What it is to be seen beside: a spread, or the figure of something bare.
        aim: What it should be; empty if nothing was promised.
    """

    what: str
    figure: str
    beside: str = ""
    aim: str = ""


def machine() -> dict[str, Any]:
    """Return what figures depend on; nothing that tells whose machine it is."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {package: _version(package) for package in PACKAGES},
    }


def markdown(rows: list[Row], on: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    packages = ", ".join(f"{name} {number}" for name, number in on["packages"].items())
    lines = [
        "| What | Figure | Beside | Aim |",
        "|---|---|---|---|",
        *(f"| {row.what} | {row.figure} | {row.beside} | {row.aim} |" for row in rows),
        "",
        f"{on['date']}, {on['processor']}, {on['processors']} processors, {on['system']}, {on['python']}; {packages}.",
    ]
    return "\n".join(lines) + "\n"


def write(rows: list[Row], raw: dict[str, Any], folder: Path = RESULTS) -> None:
    """Write ``bench.md``, and ``bench.json`` with every round, into a folder that is made if need be."""
    on = machine()
    folder.mkdir(exist_ok=True)
    (folder / "bench.md").write_text(markdown(rows, on))
    document = msgspec.json.encode({"machine": on} | raw)
    (folder / "bench.json").write_bytes(msgspec.json.format(document, indent=2) + b"\n")
    sys.stdout.write(markdown(rows, on))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except FileNotFoundError:
        pass
    return platform.processor() or "unknown processor"
