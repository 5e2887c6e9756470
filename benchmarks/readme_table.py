"""The README's performance table, taken from the report that is committed: ``python -m benchmarks table``."""

from pathlib import Path

from benchmarks.aims import BEST_OF
from benchmarks.results import Measured, Results

README = Path(__file__).parents[1] / "README.md"
BEGIN = "<!-- benchmarks: begin -->"
END = "<!-- benchmarks: end -->"

_SERVERS = ("mcpbus", *BEST_OF, "trio-httptools")


def render(results: Results) -> str:
    """Return the table, and what it was measured on."""
    lines = [
        "| Server | Short calls/s | µs of processor | Calls/s with 10 notifications | A notification, ms | 1,000 listens, ms | Session, KiB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for server in _SERVERS:
        short = results.find("short-call", server, 32)
        if short is None:
            continue
        cells = [
            results.title(server),
            _cell(short, "rate", "{:,.0f}"),
            _cell(short, "cpu_us", "{:,.0f}"),
            _cell(results.find("chatter", server, 10), "rate", "{:,.0f}"),
            _cell(results.find("latency", server, 0), "p50_ms", "{:.2f}"),
            _cell(results.find("fan-out-listens", server, 1_000), "last_ms", "{:,.0f}"),
            _cell(results.find("idle-sessions", server, 1_000), "each", "{:,.1f}", 1 / 1024),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    on = results.machine
    lines += [
        "",
        f"Measured on {on['date']}: {on['processor']}, one core for the server and one for the load, {on['python']}.",
    ]
    return "\n".join(lines)


def _cell(row: Measured | None, key: str, form: str, scale: float = 1.0) -> str:
    return "" if row is None else form.format(row.median(key) * scale)


def current(readme: str) -> str:
    """Return what is between the marks in a README.

    Raises:
        ValueError: A mark is missing.
    """
    begin, end = readme.index(BEGIN) + len(BEGIN), readme.index(END)
    return readme[begin:end].strip()


def update(results: Results, path: Path = README) -> None:
    """Write the table of a run into a README.

    Raises:
        ValueError: A mark is missing there.
    """
    readme = path.read_text()
    begin, end = readme.index(BEGIN) + len(BEGIN), readme.index(END)
    path.write_text(f"{readme[:begin]}\n{render(results)}\n{readme[end:]}")
