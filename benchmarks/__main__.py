"""Everything that is measured, in one run: ``make bench``, or ``python -m benchmarks``."""

import sys

import attrs
import trio

from benchmarks import actors_bench, http_bench, memory_bench
from benchmarks.http_bench import Measured
from benchmarks.memory_bench import Memory
from benchmarks.report import Row, write

_ACTOR_AIMS = {"memory of an idle actor": "at most 410 bytes", "tell to an idle actor": "about 1 µs"}


def main() -> None:
    """Measure, print one table, and write it to ``benchmarks/results/``."""
    _say("requests per second over HTTP ...")
    http = http_bench.measure()
    _say("memory of idle sessions ...")
    memory = trio.run(memory_bench.measure)
    _say("actors ...")
    actors = trio.run(actors_bench.measure)
    write(
        [*_http_rows(http), *_memory_rows(memory), *_actor_rows(actors)],
        {
            "http": [attrs.asdict(server) for server in http],
            "memory": attrs.asdict(memory),
            "actors": [attrs.asdict(figure) for figure in actors],
        },
    )


def _http_rows(measured: list[Measured]) -> list[Row]:
    by_name = {server.name: server for server in measured}
    rows = [
        Row(
            f"tools/call, JSON answer: {server.name}",
            f"{server.rate:,.0f} requests/s",
            f"{server.spread}; {server.microseconds:,.0f} µs of processor time each",
        )
        for server in measured
    ]
    for name, other in http_bench.PAIRS:
        subject, base = by_name[name], by_name[other]
        ratio, cost = subject.ratio_to(base), base.microseconds / subject.microseconds
        rows.append(Row(f"{name} : {other}", f"{ratio:.2f}", f"by processor time {cost:.2f}", ">= 0.8"))
    return rows


def _memory_rows(memory: Memory) -> list[Row]:
    return [
        Row("an idle session", f"{memory.idle:,.0f} bytes", "", "at most 4,096 bytes"),
        Row("what a deleted session leaves", f"{memory.left:,.0f} bytes", "", "0 bytes"),
    ]


def _actor_rows(figures: list[actors_bench.Figure]) -> list[Row]:
    return [
        Row(
            f"actors: {figure.name}",
            f"{figure.value:,.2f} {figure.unit}",
            "",
            _ACTOR_AIMS.get(figure.name, ""),
        )
        for figure in figures
    ]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
