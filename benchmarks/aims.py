"""What the project promises of its figures, and whether a run kept it. All are ratios within the run, or stated with their unit."""

from collections.abc import Callable, Iterator

import attrs

from benchmarks.growth import fit, points
from benchmarks.results import BOUNDED, Measured, Results
from benchmarks.scenarios.part import Part
from benchmarks.scenarios.parts import PARTS

BEST_OF = (
    "python-sdk-uvicorn",
    "python-sdk-hypercorn",
    "fastmcp",
    "typescript-sdk",
    "mcp-go",
    "go-sdk",
    "rmcp",
)
"""Who is meant by the best peer."""


@attrs.frozen
class Value:
    """What a run has of a figure.

    Attributes:
        value: The median.
        is_bounded: Whether the load was too busy to say how much more it is, or how much less.
    """

    value: float
    is_bounded: bool = False


Measure = Callable[[Results], Value | None]
"""Takes a figure from a run; None if the run does not have it."""


@attrs.frozen
class Aim:
    """One promise.

    Attributes:
        what: The figure, in words.
        measure: Takes it from a run.
        bound: What it should be.
        at_least: Whether that is the least it should be, or the most.
        unit: What is written behind it.
    """

    what: str
    measure: Measure
    bound: float
    at_least: bool
    unit: str = ""

    def kept(self, value: float) -> bool:
        """Return whether a value is as promised."""
        return value >= self.bound if self.at_least else value <= self.bound


def _figure(scenario: str, server: str, size: int, key: str, scale: float = 1.0) -> Measure:
    def measure(results: Results) -> Value | None:
        row = results.find(scenario, server, size)
        return None if row is None or key not in row.turns[0] else Value(row.median(key) * scale)

    return measure


def _ratio(scenario: str, size: int, server: str, base: str) -> Measure:
    def measure(results: Results) -> Value | None:
        own, its = results.find(scenario, server, size), results.find(scenario, base, size)
        return None if own is None or its is None else _over(own, its)

    return measure


def _ratio_to_best(scenario: str, size: int, server: str) -> Measure:
    def measure(results: Results) -> Value | None:
        own = results.find(scenario, server, size)
        peers = [row for name in BEST_OF if (row := results.find(scenario, name, size)) is not None]
        if own is None or not peers:
            return None
        return min((_over(own, peer) for peer in peers), key=lambda value: value.value)

    return measure


def _figure_over(scenario: str, server: str, base: str, key: str) -> Measure:
    def measure(results: Results) -> Value | None:
        own, its = results.find(scenario, server), results.find(scenario, base)
        return None if own is None or its is None else Value(own.ratio(its, key))

    return measure


def _over(own: Measured, its: Measured) -> Value:
    return Value(own.ratio(its, "rate"), own.is_bounded() or its.is_bounded())


def _exponent(scenario: str, server: str, key: str, least: int) -> Measure:
    def measure(results: Results) -> Value | None:
        law = fit(point for point in points(results, scenario, server, key) if point[0] >= least)
        return None if law is None else Value(law.exponent)

    return measure


def _short(base: str, bound: float) -> Aim:
    what = f"short call, 32 connections: mcpbus over {base}"
    return Aim(what, _ratio("short-call", 32, "mcpbus", base), bound, at_least=True)


def _mix(base: str, bound: float) -> Aim:
    what = f"mixture of calls, processor time of each: {base} over mcpbus"
    return Aim(what, _figure_over("mix", base, "mcpbus", "cpu_us"), bound, at_least=True)


def _of_part(part: Part) -> Iterator[Aim]:
    if part.aim is not None:
        what = f"call with {part.title}: processor time over {part.base_title}"
        yield Aim(what, _figure(part.name, "mcpbus", 0, "times"), part.aim, at_least=False)
    for server, bound in part.peers.items():
        what = f"call with {part.title}: mcpbus over {server}"
        yield Aim(what, _ratio(part.name, 0, "mcpbus", server), bound, at_least=True)


AIMS = (
    _short("trio-httptools", 0.5),
    _short("python-sdk-uvicorn", 8),
    _short("typescript-sdk", 5),
    _short("mcp-go", 1),
    _short("go-sdk", 1),
    _short("rmcp", 1),
    Aim(
        "short call, 32 connections: mcpbus over bare ASGI, both on plain hypercorn",
        _ratio("short-call", 32, "mcpbus-asgi", "bare-hypercorn"),
        0.85,
        at_least=True,
    ),
    Aim(
        "short call, 32 connections: mcpbus over the official Python SDK, both on uvicorn",
        _ratio("short-call", 32, "mcpbus-uvicorn", "python-sdk-uvicorn"),
        2.2,
        at_least=True,
    ),
    _mix("go-sdk", 3),
    _mix("mcp-go", 3),
    _mix("rmcp", 1),
    _mix("python-sdk-uvicorn", 8),
    *(aim for part in PARTS for aim in _of_part(part)),
    Aim(
        "token that was not seen before, beyond the check of its signature",
        _figure("first-token", "mcpbus", 0, "beyond_us"),
        30,
        at_least=False,
        unit="µs",
    ),
    Aim(
        "short call through a proxy, 32 connections: mcpbus over fastmcp",
        _ratio("proxy", 32, "mcpbus", "fastmcp"),
        8,
        at_least=True,
    ),
    Aim(
        "call with 10 notifications: mcpbus over the best peer",
        _ratio_to_best("chatter", 10, "mcpbus"),
        3,
        at_least=True,
    ),
    Aim(
        "notification, made to received, idle: p50",
        _figure("latency", "mcpbus", 0, "p50_ms"),
        1,
        at_least=False,
        unit="ms",
    ),
    Aim(
        "fan-out to 1,000 listens: the last one told",
        _figure("fan-out-listens", "mcpbus", 1_000, "last_ms"),
        50,
        at_least=False,
        unit="ms",
    ),
    Aim(
        "fan-out to 100 listens and more: exponent of its growth",
        _exponent("fan-out-listens", "mcpbus", "last_ms", 100),
        1.1,
        at_least=False,
    ),
    Aim(
        "idle session without a stream, of 10,000: resident",
        _figure("idle-sessions", "mcpbus", 10_000, "each", 1 / 1024),
        4,
        at_least=False,
        unit="KiB",
    ),
    Aim(
        "idle stream, of 10,000: resident",
        _figure("idle-listens", "mcpbus", 10_000, "each", 1 / 1024),
        12,
        at_least=False,
        unit="KiB",
    ),
    Aim(
        "idle stream of HTTP/2, of 1,000: resident",
        _figure("idle-http2", "mcpbus-http2", 1_000, "each", 1 / 1024),
        6,
        at_least=False,
        unit="KiB",
    ),
    Aim(
        "idle WebSocket, of 1,000: resident",
        _figure("idle-websockets", "mcpbus-websocket", 1_000, "each", 1 / 1024),
        10,
        at_least=False,
        unit="KiB",
    ),
    Aim(
        "one stalled reader among 100: the others' p99 with it over without",
        _figure("stalled", "mcpbus", 1, "p99_ratio"),
        1.2,
        at_least=False,
    ),
    Aim(
        "a call at another process than its session's, on 32 connections: over one there",
        _figure("replicas", "mcpbus", 32, "times"),
        2.0,
        at_least=False,
    ),
    Aim(
        "a call at another process than its session's, on 1 connection: p50 later by",
        _figure("replicas", "mcpbus", 1, "later_ms"),
        0.3,
        at_least=False,
        unit="ms",
    ),
    Aim(
        "calls by two workers: of what two cores less the load allow",
        _figure("workers", "mcpbus", 0, "share"),
        0.9,
        at_least=True,
    ),
    Aim(
        "first call of a session after the kill of its worker",
        _figure("killed-worker", "mcpbus", 0, "first_ms"),
        50,
        at_least=False,
        unit="ms",
    ),
    Aim(
        "first call of a session after the kill of its replica: later than the lease by",
        _figure("killed-replica", "mcpbus", 0, "beyond_ms"),
        500,
        at_least=False,
        unit="ms",
    ),
    Aim(
        "10,000 sessions handed over in a drain: until the process has ended",
        _figure("drain", "mcpbus", 10_000, "seconds"),
        2,
        at_least=False,
        unit="s",
    ),
    Aim(
        "hosted server of the official SDK, short call: of the processor time on its own",
        _figure("hosted", "mcpbus", 0, "short_share"),
        1 / 2,
        at_least=False,
    ),
    Aim(
        "hosted server of the official SDK, call with progress: of the processor time on its own",
        _figure("hosted", "mcpbus", 0, "progress_share"),
        2 / 3,
        at_least=False,
    ),
    Aim(
        "hosted server of the official SDK: resident memory of a session",
        _figure("hosted", "mcpbus", 0, "session", 1 / 1024),
        10,
        at_least=False,
        unit="KiB",
    ),
    Aim("calls in process", _figure("in-process", "mcpbus", 1, "rate"), 50_000, at_least=True, unit="/s"),
    Aim("idle actor", _figure("actors", "mcpbus", 0, "idle_bytes"), 410, at_least=False, unit="bytes"),
)


def table(results: Results) -> list[str]:
    """Return the promises that a run has a figure of, as Markdown."""
    lines = ["| Figure | Measured | Aim | |", "|---|---:|---:|---|"]
    for aim in AIMS:
        if (measured := aim.measure(results)) is not None:
            value, mark = measured.value, BOUNDED if measured.is_bounded else ""
            sign = ">=" if aim.at_least else "<="
            unit = f" {aim.unit}" if aim.unit else ""
            kept = "kept" if aim.kept(value) else "**missed**"
            lines.append(
                f"| {aim.what} | {_shown(value, aim.bound)}{unit}{mark} | {sign} {aim.bound:,g}{unit} | {kept} |"
            )
    return lines if len(lines) > 2 else []


def _shown(value: float, bound: float) -> str:
    decimals = 0 if value >= 100 else 2
    if round(value, decimals) == bound:
        decimals += 2  # which side of it
    return f"{value:,.{decimals}f}"
