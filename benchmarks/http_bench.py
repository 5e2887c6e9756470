"""Requests per second over HTTP/1.1: run as ``python -m benchmarks.http_bench``.

One `tools/call` of revision 2026-07-28 with a JSON answer, over 32 kept-alive connections, beside a bare ASGI application
under the same hypercorn. Each server is a process of its own and so is the load; where there are two processors or more, they
do not share one. The servers take short turns, in one order and then in the other, so that what else the machine does falls on
all of them alike. Ratios are made round by round, and their median counts. Processor time for each request is told too, where
Linux tells it, from the best round: what else the machine does can only add to it.
"""

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec

ROUNDS = 12
SECONDS = 0.8
WARM_UP_SECONDS = 0.5
CONNECTIONS = 32

SERVERS = {
    "bare ASGI, hypercorn on trio": ("hypercorn", "bare"),
    "mcpbus, hypercorn on trio": ("hypercorn", "mcpbus"),
    "bare ASGI, mcpbus serve": ("mcpbus", "bare"),
    "mcpbus, mcpbus serve": ("mcpbus", "mcpbus"),
}
BASE = "bare ASGI, hypercorn on trio"
PAIRS = [
    # what is compared, and with what
    ("mcpbus, hypercorn on trio", BASE),
    ("mcpbus, mcpbus serve", "bare ASGI, mcpbus serve"),
    ("mcpbus, mcpbus serve", BASE),
]


@attrs.frozen
class Measured:
    """One server's figures, one for each round.

    Attributes:
        name: Which server.
        rates: Requests per second.
        p50: Median latencies in milliseconds.
        p99: 99th percentiles of the latencies in milliseconds.
        cpu: Processor time of the server for one request, in microseconds.
    """

    name: str
    rates: list[float] = attrs.field(factory=list)
    p50: list[float] = attrs.field(factory=list)
    p99: list[float] = attrs.field(factory=list)
    cpu: list[float] = attrs.field(factory=list)

    @property
    def rate(self) -> float:
        """The median of the rates."""
        return statistics.median(self.rates)

    @property
    def microseconds(self) -> float:
        """The lowest of the processor times."""
        return min(self.cpu)

    def ratio_to(self, base: "Measured") -> float:
        """Return the median of the ratios of the rates, round by round."""
        return statistics.median(own / its for own, its in zip(self.rates, base.rates, strict=True))

    @property
    def spread(self) -> str:
        """The lowest and the highest rate."""
        return f"{min(self.rates):,.0f} to {max(self.rates):,.0f}"


def measure(rounds: int = ROUNDS, seconds: float = SECONDS) -> list[Measured]:
    """Measure all servers in turns."""
    measured = [Measured(name) for name in SERVERS]
    with ExitStack() as stack:
        processes = [stack.enter_context(_served(*SERVERS[server.name])) for server in measured]
        for _, port in processes:
            _load(port, WARM_UP_SECONDS)
        turns = list(zip(measured, processes, strict=True))
        for number in range(rounds):
            for server, (pid, port) in turns if number % 2 == 0 else reversed(turns):
                before = _processor_seconds(pid)
                figures = _load(port, seconds)
                used = _processor_seconds(pid) - before
                server.rates.append(figures["requests_per_second"])
                server.p50.append(figures["p50_ms"])
                server.p99.append(figures["p99_ms"])
                server.cpu.append(used / figures["requests"] * 1e6)
    return measured


def _processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used; not a number where the system does not tell."""
    try:
        # proc(5): the fields behind the command's name, which may hold anything, are numbered from 3 on.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return float("nan")
    return (int(fields[14 - 3]) + int(fields[15 - 3])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _served(server: str, app: str) -> Iterator[tuple[int, int]]:
    """Run one server, and yield its process id and its port once it listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = _start(0, "benchmarks.served", server, app, str(port))
    try:
        _wait_until_it_listens(port, process)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_listens(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{process.args!r} does not listen") from None
            time.sleep(0.05)
        else:
            return


def _load(port: int, seconds: float) -> dict[str, float]:
    process = _start(1, "benchmarks.load", str(port), str(seconds), str(CONNECTIONS), stdout=subprocess.PIPE)
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError("the load generator failed")
    return msgspec.json.decode(output, type=dict[str, float])


def _start(processor: int, module: str, *arguments: str, **pipes: Any) -> "subprocess.Popen[bytes]":
    """Start a Python program on one processor of those that we may use."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], **pipes)
    if hasattr(os, "sched_setaffinity"):
        available = sorted(os.sched_getaffinity(0))
        if len(available) > 1:
            os.sched_setaffinity(process.pid, {available[processor]})
    return process


HEADER = ("server", "requests/s", "lowest to highest", "ratio", "p50", "p99", "processor time", "ratio")


def rows(measured: list[Measured]) -> list[list[str]]:
    """Return the rows of a table under `HEADER`; both ratios are to the bare application under plain hypercorn."""
    base = next(server for server in measured if server.name == BASE)
    return [
        [
            server.name,
            f"{server.rate:,.0f}",
            server.spread,
            f"{server.ratio_to(base):.2f}",
            f"{statistics.median(server.p50):.1f} ms",
            f"{statistics.median(server.p99):.1f} ms",
            f"{server.microseconds:,.0f} µs",
            f"{base.microseconds / server.microseconds:.2f}",
        ]
        for server in measured
    ]


if __name__ == "__main__":
    for row in (HEADER, *rows(measure())):
        print(" | ".join(row))
