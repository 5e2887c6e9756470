"""The figures of a run as pictures, each as SVG and as PNG; drawn where matplotlib is installed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import fit, points
from benchmarks.results import Measured, Results
from benchmarks.scenarios.scenario import Scenario

OURS, LIMIT, OTHER = "#c1440e", "#9aa5b1", "#34618d"
_LIMITS = ("trio-httptools", "bare-hypercorn", "bare-uvicorn")
_MARKERS = "osD^vP*X<>hd"


def draw(results: Results, scenarios: Sequence[Scenario], folder: Path) -> list[str]:
    """Draw what was measured into a folder, and return the names of the pictures; none without matplotlib."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  it may be absent
    except ImportError:
        return []
    mpl.rcParams.update({"svg.hashsalt": "mcpbus", "svg.fonttype": "none", "font.size": 9})
    drawn = []
    for scenario in scenarios:
        rows = results.of(scenario.name)
        if not rows or len(scenario.metrics) > 8:  # a list of unlike figures is no picture
            continue
        sizes = sorted({row.size for row in rows})
        grows = scenario.grows is not None and len(sizes) > 2
        figure = _lines(results, scenario, rows) if grows else _bars(results, scenario, rows, sizes)
        for suffix in ("svg", "png"):
            metadata = {"Date": None} if suffix == "svg" else None
            figure.savefig(
                folder / f"{scenario.name}.{suffix}", dpi=110, metadata=metadata, bbox_inches="tight"
            )
        drawn.append(scenario.name)
    return drawn


def _bars(results: Results, scenario: Scenario, rows: Sequence[Measured], sizes: Sequence[int]) -> Any:
    """Draw the first metric of each server, a picture for each size beside the others, with the spread."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    metric = scenario.metrics[0]
    best: dict[str, float] = {}
    for row in rows:
        best[row.server] = max(best.get(row.server, 0.0), row.median(metric.key))
    servers = sorted(best, key=lambda server: best[server], reverse=bool(metric.more_is_better))
    figure = Figure(figsize=(3.1 * len(sizes) + 1.8, 0.32 * len(servers) + 1.2))
    axes = figure.subplots(1, len(sizes), sharey=True, squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        of_size = {row.server: row for row in rows if row.size == size}
        shown = [server for server in reversed(servers) if server in of_size]
        medians = [of_size[server].median(metric.key) * metric.scale for server in shown]
        spreads = [of_size[server].spread(metric.key) for server in shown]
        errors = [
            [middle - low * metric.scale for middle, (low, _) in zip(medians, spreads, strict=True)],
            [high * metric.scale - middle for middle, (_, high) in zip(medians, spreads, strict=True)],
        ]
        titles = [results.title(server) for server in shown]
        bars = axis.barh(
            titles, medians, xerr=errors, color=[_color(server) for server in shown], ecolor="#222"
        )
        axis.bar_label(bars, [metric.shown(value / metric.scale) for value in medians], padding=4, fontsize=8)
        axis.margins(x=0.28)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel(metric.title)
        if scenario.size_title:
            axis.set_title(f"{size:,} {scenario.size_title}", fontsize=9)
    figure.suptitle(scenario.title, fontsize=11)
    figure.tight_layout()
    return figure


def _lines(results: Results, scenario: Scenario, rows: Sequence[Measured]) -> Any:
    """Draw how the growing metric grows, in logarithms, with the exponent of each server."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    [metric] = [metric for metric in scenario.metrics if metric.key == scenario.grows]
    figure = Figure(figsize=(6.4, 4.2))
    axis = figure.subplots()
    for number, server in enumerate(dict.fromkeys(row.server for row in rows)):
        measured = points(results, scenario.name, server, metric.key)
        law = fit(measured)
        axis.plot(
            [size for size, _ in measured],
            [value * metric.scale for _, value in measured],
            marker=_MARKERS[number % len(_MARKERS)],
            label=results.title(server) + ("" if law is None else f" (exponent {law.exponent:.2f})"),
            color=OURS if server == "mcpbus" else None,
            linewidth=2 if server == "mcpbus" else 1,
        )
    axis.set(
        xscale="log", yscale="log", xlabel=scenario.size_title, ylabel=metric.title, title=scenario.title
    )
    axis.grid(visible=True, which="major", color="#ddd")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    return figure


def _color(server: str) -> str:
    return OURS if server.startswith("mcpbus") else LIMIT if server in _LIMITS else OTHER
