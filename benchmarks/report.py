"""The report of a run, as Markdown: a table for each scenario and size, and what is missing from them."""

from collections.abc import Collection, Sequence
from itertools import groupby

from benchmarks import aims, growth, machine
from benchmarks.plots import PARTS
from benchmarks.results import BOUNDED, Measured, Results
from benchmarks.scenarios.part import Part
from benchmarks.scenarios.scenario import CPU, RATE, Inside, Metric, Scenario

LIMIT_OF = {
    "mcpbus": "trio-httptools",
    "mcpbus-asgi": "bare-hypercorn",
    "mcpbus-uvicorn": "bare-uvicorn",
    "python-sdk-hypercorn": "bare-hypercorn",
    "python-sdk-uvicorn": "bare-uvicorn",
    "fastmcp": "bare-uvicorn",
}
"""Servers, and for each one what answers with fixed bytes in the same way: no server can be faster than that."""

_RATIOS = {CPU.key: "ratio of processor time"}


def markdown(results: Results, scenarios: Sequence[Scenario], pictures: Collection[str] = ()) -> str:
    """Return the whole report, with the pictures that were drawn."""
    parts = ["# Benchmarks", _machine(results)]
    # A quick run has too few turns for a verdict.
    judged = [] if results.quick else aims.table(results)
    for title, lines in (("Aims", judged), ("Growth", growth.table(results, scenarios))):
        if lines:
            parts += [f"## {title}", "\n".join(lines)]
    return "\n\n".join([*parts, *_sections(results, scenarios, pictures)]) + "\n"


def figures(results: Results, scenarios: Sequence[Scenario]) -> str:
    """Return what was measured, and on which machine, without a word about what it should be."""
    return "\n\n".join([_machine(results), *_sections(results, scenarios)]) + "\n"


def busy_machine(others: float) -> str:
    """Return the sentence about a machine that others use."""
    return f"**The machine was busy:** others took {others:.0%} of its processors before the run. Measure again when it is idle."


def _sections(results: Results, scenarios: Sequence[Scenario], pictures: Collection[str] = ()) -> list[str]:
    """Return the paragraphs of all that was measured."""
    parts: list[str] = []
    for is_part, group in groupby(scenarios, lambda scenario: isinstance(scenario, Part)):
        mentioned = [scenario for scenario in group if _mentioned(results, scenario)]
        if is_part and mentioned:
            parts += _section_of_parts(results, mentioned, PARTS in pictures)
        elif mentioned:
            for scenario in mentioned:
                parts += section(results, scenario, scenario.name in pictures)
    return parts


def section(results: Results, scenario: Scenario, has_picture: bool) -> list[str]:
    """Return the paragraphs of what a scenario measured."""
    measured = results.of(scenario.name)
    parts = [f"## {scenario.title}", scenario.what]
    if has_picture:
        parts.append(f"![{scenario.title}]({scenario.name}.svg)")
    servers = {row.server for row in measured}
    for size in sorted({row.size for row in measured}):
        if scenario.size_title:
            parts.append(f"### {size:,} {scenario.size_title}")
        rows = [row for row in measured if row.size == size]
        lines = _list(scenario, rows[0]) if isinstance(scenario, Inside) else _table(results, scenario, rows)
        parts.append("\n".join(lines))
        parts += _beyond_limits(results, scenario, rows)
    if scenario.base in servers and len(servers) > 1:
        parts.append(f"Ratios are to {results.title(scenario.base)}, turn by turn.")
    return [*parts, *_missing(results, scenario)]


def _section_of_parts(results: Results, scenarios: Sequence[Scenario], has_picture: bool) -> list[str]:
    """Return the paragraphs of what is measured part by part: one table for all, with what each is called in it."""
    metrics = Part.metrics
    lines = [
        f"| Part | Server | {' | '.join(metric.title for metric in metrics)} | ratio of rates |",
        "|---|---|" + "---:|" * (len(metrics) + 1),
    ]
    missing: list[str] = []
    for scenario in scenarios:
        base = results.find(scenario.name, scenario.base)
        for row in results.of(scenario.name):
            cells = [f"{scenario.title} (`{scenario.name}`)", results.title(row.server)]
            cells += [cell(row, metric, with_spread=metric is metrics[0]) for metric in metrics]
            cells.append("" if base is None or base is row else f"{row.ratio(base, RATE.key):.2f}")
            lines.append("| " + " | ".join(cells) + " |")
        missing += [f"{line}, in {scenario.title}" for line in _missing(results, scenario)]
    parts = ["## Parts of that mixture, and more, each alone", Part.what, "\n".join(lines)]
    if has_picture:
        parts.insert(2, f"![Parts]({PARTS}.svg)")
    return [*parts, *missing]


def _missing(results: Results, scenario: Scenario) -> list[str]:
    """Return the paragraph that says who is missing, if anybody is."""
    lines = [
        f"- {results.title(missing.server)} is {'incomplete' if missing.failed else 'absent'}: {missing.reason}"
        for missing in results.missing
        if missing.scenario == scenario.name
    ]
    return ["\n".join(lines)] if lines else []


def _list(scenario: Scenario, row: Measured) -> list[str]:
    lines = ["| Figure | |", "|---|---:|"]
    return [
        *lines,
        *(f"| {metric.title} | {cell(row, metric, with_spread=True)} |" for metric in scenario.metrics),
    ]


def _table(results: Results, scenario: Scenario, rows: Sequence[Measured]) -> list[str]:
    first = scenario.metrics[0]
    metrics = [metric for metric in scenario.metrics if any(metric.key in row.turns[0] for row in rows)]
    base = next((row for row in rows if row.server == scenario.base), None)
    ratios = _ratios(scenario, rows) if base is not None else []
    header = ["Server", *(metric.title for metric in metrics)]
    header += [_RATIOS.get(metric.key, "ratio") for metric in ratios]
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    for row in sorted(rows, key=lambda row: row.median(first.key), reverse=bool(first.more_is_better)):
        cells = [results.title(row.server)]
        cells += [cell(row, metric, with_spread=metric is first) for metric in metrics]
        cells += [f"{row.ratio(base, metric.key):.2f}" for metric in ratios if base is not None]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _beyond_limits(results: Results, scenario: Scenario, rows: Sequence[Measured]) -> list[str]:
    """Return the paragraph about servers that were faster than what does a part of their work alone, if there are any."""
    if RATE not in scenario.metrics:
        return []
    by_name = {row.server: row for row in rows}
    lines = []
    for server, limit in LIMIT_OF.items():
        if server in by_name and limit in by_name:
            ratio = by_name[server].ratio(by_name[limit], RATE.key)
            if ratio > 1:
                lines.append(
                    f"- {results.title(server)} has {ratio:.2f} times the rate of {results.title(limit)}, which does less: something "
                    "else than the server is measured, such as the load or other work of the machine."
                )
    return ["\n".join(lines)] if lines else []


def _ratios(scenario: Scenario, rows: Sequence[Measured]) -> list[Metric]:
    """Return what ratios are made of: the first metric, and processor time; of one server alone there is none."""
    if len(rows) < 2:
        return []
    return [metric for metric in scenario.metrics if metric in (scenario.metrics[0], CPU)]


def cell(row: Measured, metric: Metric, *, with_spread: bool) -> str:
    """Return a figure: its median, and on demand its lowest and highest value."""
    if metric.key not in row.turns[0]:
        return ""
    shown = metric.shown(row.median(metric.key))
    if with_spread and len(row.turns) > 1:
        low, high = row.spread(metric.key)
        shown += f" ({metric.shown(low)} to {metric.shown(high)})"
    return shown + (BOUNDED if with_spread and row.is_bounded() else "")


def _mentioned(results: Results, scenario: Scenario) -> bool:
    return any(known.scenario == scenario.name for known in (*results.measured, *results.missing))


def _machine(results: Results) -> str:
    on = results.machine
    packages = ", ".join(f"{name} {number}" for name, number in on["packages"].items())
    took = f"The run took {results.seconds / 60:,.1f} minutes."
    if on.get("busy", 0) > machine.BUSY:
        took += f" {busy_machine(on['busy'])}"
    if results.quick:
        took += " It was a quick one, which proves nothing but that the suite works."
    return f"{on['date']}, {on['processor']}, {on['processors']} processors, {on['system']}, {on['python']}; {packages}. {took}"
