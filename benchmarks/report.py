"""The report of a run, as Markdown: a table for each scenario and size, and what is missing from them."""

from collections.abc import Iterable, Sequence

from benchmarks.results import Measured, Results
from benchmarks.scenarios.scenario import CPU, Metric, Scenario

_RATIOS = {CPU.key: "ratio of processor time"}


def markdown(results: Results, scenarios: Iterable[Scenario]) -> str:
    """Return the whole report."""
    parts = [f"# Benchmarks\n\n{_machine(results)}\n"]
    parts += [section(results, scenario) for scenario in scenarios if _mentioned(results, scenario)]
    return "\n".join(parts)


def section(results: Results, scenario: Scenario) -> str:
    """Return what a scenario measured."""
    lines = [f"## {scenario.title}", "", scenario.what, ""]
    measured = results.of(scenario.name)
    for size in sorted({row.size for row in measured}):
        if scenario.size_title:
            lines += [f"### {size:,} {scenario.size_title}", ""]
        rows = [row for row in measured if row.size == size]
        lines += [*_table(results, scenario, rows), ""]
    if any(row.server == scenario.base for row in measured) and len({row.server for row in measured}) > 1:
        lines += [f"Ratios are to {_title(results, scenario.base)}.", ""]
    for missing in results.missing:
        if missing.scenario == scenario.name:
            kind = "failed" if missing.failed else "absent"
            lines.append(f"- {_title(results, missing.server)}: {kind}: {missing.reason}")
    return "\n".join(lines).rstrip() + "\n"


def _table(results: Results, scenario: Scenario, rows: Sequence[Measured]) -> list[str]:
    first = scenario.metrics[0]
    metrics = [metric for metric in scenario.metrics if any(metric.key in row.turns[0] for row in rows)]
    base = next((row for row in rows if row.server == scenario.base), None)
    ratios = _ratios(scenario, rows) if base is not None else []
    header = ["Server", *(metric.title for metric in metrics)]
    header += [_RATIOS.get(metric.key, "ratio") for metric in ratios]
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    for row in sorted(rows, key=lambda row: row.median(first.key), reverse=bool(first.more_is_better)):
        cells = [_title(results, row.server)]
        cells += [cell(row, metric, with_spread=metric is first) for metric in metrics]
        cells += [f"{row.ratio(base, metric.key):.2f}" for metric in ratios if base is not None]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _ratios(scenario: Scenario, rows: Sequence[Measured]) -> list[Metric]:
    """Return what ratios are made of: the first metric, and processor time; of one server alone there is none."""
    if len(rows) < 2:
        return []
    return [metric for metric in scenario.metrics if metric in (scenario.metrics[0], CPU)]


def cell(row: Measured, metric: Metric, *, with_spread: bool) -> str:
    """Return a figure: its median, and on demand its lowest and highest value."""
    if metric.key not in row.turns[0]:
        return ""
    median = metric.shown(row.median(metric.key))
    if not with_spread or len(row.turns) < 2:
        return median
    low, high = row.spread(metric.key)
    return f"{median} ({metric.shown(low)} to {metric.shown(high)})"


def _mentioned(results: Results, scenario: Scenario) -> bool:
    return any(known.scenario == scenario.name for known in (*results.measured, *results.missing))


def _title(results: Results, server: str) -> str:
    subject = results.subjects.get(server)
    return server if subject is None else subject.title


def _machine(results: Results) -> str:
    on = results.machine
    packages = ", ".join(f"{name} {number}" for name, number in on["packages"].items())
    return (
        f"{on['date']}, {on['processor']}, {on['processors']} processors, {on['system']}, {on['python']}; {packages}. "
        f"{'A quick run, which proves nothing but that the suite works' if results.quick else 'The run took'}"
        f"{f'; it took {results.seconds:,.0f} s' if results.quick else f' {results.seconds / 60:,.0f} minutes'}."
    )
