"""How a cost grows with its size: a power law through what was measured, by least squares of the logarithms."""

import math
from collections.abc import Iterable

import attrs

from benchmarks.results import Results
from benchmarks.scenarios.scenario import Scenario


@attrs.frozen
class Growth:
    """The law ``value = factor * size ** exponent``.

    Attributes:
        exponent: 1 is linear, 0 is not growing.
        factor: The value at size 1.
        fit: How much of the logarithms' variance it explains, up to 1 (R squared).
    """

    exponent: float
    factor: float
    fit: float


def fit(points: Iterable[tuple[float, float]]) -> Growth | None:
    """Return the law through some sizes and values; None through fewer than three that have a logarithm."""
    logs = [(math.log(size), math.log(value)) for size, value in points if size > 0 and value > 0]
    if len(logs) < 3:
        return None
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    if spread == 0:
        return None
    exponent = sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread
    constant = mean_y - exponent * mean_x
    total = sum((y - mean_y) ** 2 for _, y in logs)
    missed = sum((y - constant - exponent * x) ** 2 for x, y in logs)
    return Growth(exponent, math.exp(constant), 1 - missed / total if total else 1.0)


def points(results: Results, scenario: str, server: str, key: str) -> list[tuple[float, float]]:
    """Return what a metric of a server was in each size, smallest first."""
    rows = [row for row in results.of(scenario) if row.server == server]
    return sorted((float(row.size), row.median(key)) for row in rows)


def table(results: Results, scenarios: Iterable[Scenario]) -> list[str]:
    """Return the exponents of all costs that were measured in three sizes or more, as Markdown."""
    lines = ["| Cost | Server | Exponent | Fit |", "|---|---|---:|---:|"]
    for scenario in scenarios:
        if scenario.grows is None:
            continue
        [metric] = [metric for metric in scenario.metrics if metric.key == scenario.grows]
        for server in dict.fromkeys(row.server for row in results.of(scenario.name)):
            law = fit(points(results, scenario.name, server, metric.key))
            if law is not None:
                what = f"{scenario.title}: {metric.title}, by {scenario.size_title}"
                lines.append(f"| {what} | {results.title(server)} | {law.exponent:.2f} | {law.fit:.3f} |")
    return lines if len(lines) > 2 else []
