"""The figures of a run as pictures, each as SVG and as PNG; drawn where matplotlib is installed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.growth import fit, points
from benchmarks.results import Measured, Results
from benchmarks.scenarios.part import Part
from benchmarks.scenarios.scenario import Metric, Scenario

COLORS = {
    "mcpbus": "#c1440e",
    "mcpbus-asgi": "#e58a5a",
    "mcpbus-uvicorn": "#d2691e",
    "mcpbus-http2": "#a0522d",
    "mcpbus-websocket": "#f0b27a",
    "trio-httptools": "#7f8c8d",
    "bare-hypercorn": "#a5afb0",
    "bare-uvicorn": "#c3cacb",
    "python-sdk-uvicorn": "#34618d",
    "python-sdk-hypercorn": "#7fa6c9",
    "fastmcp": "#7b3f98",
    "typescript-sdk": "#b8860b",
    "mcp-go": "#1b9e8f",
    "go-sdk": "#0b6e4f",
    "rmcp": "#222222",
    "rmcp-http2": "#5c5c5c",
}
"""Each server's, in all pictures: those of mcpbus are warm, what answers with fixed bytes is grey."""
_AIM, _UNKNOWN = "#34618d", "#999999"
PARTS = "parts"
"""The name of the picture that all parts share."""
_TIMES = (1, 2, 3, 5, 10, 20, 30)
_LEAST_GAP = 0.045
"""Between the labels of lines, of the height of a picture."""
_SPREAD = "bars: medians of the turns; whiskers: lowest and highest turn"


def draw(results: Results, scenarios: Sequence[Scenario], folder: Path) -> list[str]:
    """Draw what was measured into a folder, and return the names of the pictures; none without matplotlib."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  it may be absent
    except ImportError:
        return []
    mpl.rcParams.update({"svg.hashsalt": "mcpbus", "svg.fonttype": "none", "font.size": 9})
    drawn = []
    parts = [part for part in scenarios if isinstance(part, Part) and results.find(part.name, part.base)]
    if parts:
        _save(_times(results, parts), folder / PARTS)
        drawn.append(PARTS)
    for scenario in scenarios:
        rows = results.of(scenario.name)
        # A list of unlike figures is no picture.
        if not rows or isinstance(scenario, Part) or len(scenario.metrics) > 8:
            continue
        sizes = sorted({row.size for row in rows})
        grows = scenario.grows is not None and len(sizes) > 2
        figure = _lines(results, scenario, rows) if grows else _bars(results, scenario, rows, sizes)
        _save(figure, folder / scenario.name)
        drawn.append(scenario.name)
    return drawn


def _save(figure: Any, path: Path) -> None:
    for suffix in ("svg", "png"):
        metadata = {"Date": None} if suffix == "svg" else None
        figure.savefig(path.with_suffix(f".{suffix}"), dpi=110, metadata=metadata, bbox_inches="tight")


def _times(results: Results, parts: Sequence[Part]) -> Any:
    """Draw what a call of each part costs of mcpbus over the uniform one, and what it should at most."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    [metric] = [metric for metric in Part.metrics if metric.key == "times"]
    figure = Figure(figsize=(10, 0.26 * len(parts) + 1.0))
    axis = figure.subplots()
    for place, part in enumerate(reversed(parts)):
        row = results.find(part.name, part.base)
        if row is not None:
            low, high = row.spread(metric.key)
            middle = row.median(metric.key)
            bar = axis.barh(
                place, middle, xerr=[[middle - low], [high - middle]], color=COLORS["mcpbus"], ecolor="#222"
            )
            axis.bar_label(bar, [metric.shown(middle)], padding=6, fontsize=8)
        if part.aim is not None:
            axis.plot([part.aim, part.aim], [place - 0.4, place + 0.4], color=_AIM)
    axis.set_yticks(range(len(parts)), [part.title.replace("`", "") for part in reversed(parts)])
    axis.margins(y=0.02)
    axis.set(
        title=f"Processor time of a call, {metric.title} (the blue lines are the aims)",
        xlabel=f"less is better; {_SPREAD}",
        xscale="log",
        xticks=_TIMES,
        xticklabels=map(str, _TIMES),
        xlim=(0.7, None),
    )
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


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
            titles,
            medians,
            xerr=errors,
            color=[COLORS.get(server, _UNKNOWN) for server in shown],
            ecolor="#222",
        )
        axis.bar_label(bars, [metric.shown(value / metric.scale) for value in medians], padding=4, fontsize=8)
        axis.margins(x=0.28)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel(f"{metric.title}{_direction(metric)}")
        if scenario.size_title:
            axis.set_title(f"{size:,} {scenario.size_title}", fontsize=9)
    figure.suptitle(scenario.title, fontsize=11)
    figure.text(0.5, 0.0, _SPREAD, ha="center", va="top", fontsize=7, color="#555")
    figure.tight_layout()
    return figure


def _direction(metric: Metric) -> str:
    """Return which way is better, in words behind the title of a metric."""
    if metric.more_is_better is None:
        return ""
    return " (more is better)" if metric.more_is_better else " (less is better)"


def _lines(results: Results, scenario: Scenario, rows: Sequence[Measured]) -> Any:
    """Draw how the growing metric grows, in logarithms, with the exponent of each server."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    [metric] = [metric for metric in scenario.metrics if metric.key == scenario.grows]
    figure = Figure(figsize=(6.4, 4.2))
    axis = figure.subplots()
    ends: list[tuple[float, float, str, str]] = []
    for server in dict.fromkeys(row.server for row in rows):
        measured = points(results, scenario.name, server, metric.key)
        law = fit(measured)
        sizes = [size for size, _ in measured]
        values = [value * metric.scale for _, value in measured]
        color = COLORS.get(server, _UNKNOWN)
        axis.plot(
            sizes, values, marker="o", color=color, linewidth=2 if server == "mcpbus" else 1, markersize=4
        )
        grows = "" if law is None else f" (exponent {law.exponent:.2f})"
        ends.append((sizes[-1], values[-1], results.title(server) + grows, color))
    axis.set(
        xscale="log",
        yscale="log",
        xlabel=scenario.size_title,
        ylabel=f"{metric.title}{_direction(metric)}",
        title=scenario.title,
    )
    axis.grid(visible=True, which="major", color="#ddd")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    _label_ends(axis, ends)
    return figure


def _label_ends(axis: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write beside the picture what each line is, at the height of its end, as far as there is room."""
    to_share = axis.transData + axis.transAxes.inverted()
    ordered = sorted(ends, key=lambda end: end[1])
    places = [tuple(to_share.transform((size, value))) for size, value, _, _ in ordered]
    heights = _apart([y for _, y in places])
    for (_, _, title, color), (x, y), height in zip(ordered, places, heights, strict=True):
        axis.plot([x, 1.02], [y, height], color=color, linewidth=0.5, transform=axis.transAxes, clip_on=False)
        axis.text(1.03, height, title, color=color, fontsize=8, va="center", transform=axis.transAxes)


def _apart(heights: Sequence[float]) -> list[float]:
    """Return heights, which rise, moved as little as it takes for labels not to lie on one another, nor above the picture."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + _LEAST_GAP) if moved else height)
    ceiling = 1.0
    for number in reversed(range(len(moved))):
        moved[number] = min(moved[number], ceiling)
        ceiling = moved[number] - _LEAST_GAP
    return moved
