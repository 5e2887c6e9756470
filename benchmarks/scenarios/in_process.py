"""Calls of a client in the same process: no sockets, no HTTP."""

import time
from collections.abc import Iterator, Sequence
from functools import partial

import trio

from benchmarks.answers import WrongAnswer, text_of, words
from benchmarks.load import numbers, percentile
from benchmarks.scenarios.scenario import P50, P99, RATE, Figures, Inside, Metric
from benchmarks.servers.bus import server
from mcpbus.client.client import Client


class InProcess(Inside):
    """Tasks of one trio program call the echo tool, one call after the other."""

    name = "in-process"
    title = "Calls in process"
    what = "`bus.connect()` in revision 2026-07-28: each of so many tasks calls the echo tool, one call after the other."
    size_title = "tasks"
    sizes = {1: 5, 32: 5}
    quick_sizes = (1, 32)
    metrics = (RATE, P50, P99, Metric("cpu_us", "µs of processor time each, client and all", 1))

    def turn(self, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call for a while."""
        for tasks in sizes:
            yield tasks, trio.run(partial(_call, tasks, seconds))


async def _call(tasks: int, seconds: float) -> Figures:
    latencies: list[float] = []
    async with server.open() as bus, bus.connect() as client:
        await _repeat(client, 0.1, [])
        used, start = time.process_time(), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(_repeat, client, seconds, latencies)
        used, taken = time.process_time() - used, time.perf_counter() - start
    latencies.sort()
    return {
        "rate": len(latencies) / taken,
        "p50_ms": percentile(latencies, 50) * 1e3,
        "p99_ms": percentile(latencies, 99) * 1e3,
        "cpu_us": used / len(latencies) * 1e6,
    }


async def _repeat(client: Client, seconds: float, latencies: list[float]) -> None:
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        said = words(next(numbers))
        text = text_of(await client.call_tool("echo", {"text": said}))
        if text != said:
            raise WrongAnswer(f"not what was said: {text!r}")
        then, now = now, time.perf_counter()
        latencies.append(now - then)
