"""Soaks a server: ``make soak``, or ``python -m tests.soak.run``.

A real process serves clients of all transports that come, ask for things whose handlers fail in all ways, and go, often too soon.
At each sample its books must balance; at the end, once everybody has left and nothing is waited for any more, it must hold as much
as in the beginning. A seed says who comes and what is asked for, though not when what happens. For a quarter of the time each, the delivery
checker follows, see `tests.delivery.run`, with and without a proxy.
"""

import gc
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import IO

import attrs
import click
import httpx
import trio

from tests.delivery.run import run as check_delivery
from tests.soak.soak_visits import CLAIM, SERVER, WAYS, Visitor, leaves, visit

SAMPLE_SECONDS = 1.0
TOLERATED_KILOBYTES = 48 * 1024
"""What a process may keep of what it once needed: the arenas of Python's allocator, and caches."""

ENOUGH_PATIENCE = 10.0
"""Seconds for which no client and no server is ever without a turn, so that no server may end a connection for that."""

DELIVERY_PATIENCE = 3.0
"""The same for the delivery checker, most of whose clients are not slow."""

HELD = ("sessions", "requests", "actors", "tasks", "parked", "kept", "topics", "pending", "descriptors")
"""What must be back where it was."""

MOST_FAULTS = 10
"""After which there is nothing more to learn."""

NEVER_SAID = ("the application raised", "TrioInternalError", "AssertionError")
"""What a log may not have: faults of the server's own, not of a handler's."""

FAULTS = (
    *(
        "an exception",
        "an error of the protocol",
        "SystemExit",
        "a BaseException of its own",
        "GeneratorExit",
    ),
    *("MemoryError", "asyncio's Cancelled", "a group", "an exception in a nursery", "a deadline of its own"),
    *(
        "a stray Cancelled",
        "blocking",
        "a shield",
        "a foreign await",
        "an exit in a thread",
        "endless recursion",
    ),
)


@attrs.define
class Soak:
    """What has come of it so far.

    Attributes:
        url: Where the server is.
        seed: What everybody's dice are thrown with.
        visits: How many of each kind, and how each ended.
        samples: What the server held, each second.
        faults: What was wrong.
    """

    url: str
    seed: int
    visits: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    samples: list[dict[str, int]] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)
    started: int = 0

    async def come_and_go(self, until: float) -> None:
        """Visit the server, again and again."""
        while time.monotonic() < until and len(self.faults) < MOST_FAULTS:
            self.started += 1
            seed = f"{self.seed}/{self.started}"
            ways = list(WAYS)
            (way,) = random.Random(f"way of {seed}").choices(ways, [WAYS[name][0] for name in ways])
            try:
                self.visits[way, await visit(Visitor(self.url, seed, list(FAULTS)), way)] += 1
            except* Exception as wrong:  # noqa: BLE001 - whatever it is, it should not have been
                self.faults += [f"{way}, visit {seed}: {error!r}" for error in leaves(wrong)]

    async def look(self, until: float) -> None:
        """Look at the books, each second."""
        async with inspector() as http:
            while time.monotonic() < until and len(self.faults) < MOST_FAULTS:
                try:
                    books = await self.books(http)
                except httpx.TransportError as lost:
                    self.faults.append(f"the books were not told: {lost!r}")
                    continue
                self.samples.append(books)
                if books["missing"]:
                    self.faults.append(f"{books['missing']} messages are missing from the books")
                await trio.sleep(SAMPLE_SECONDS)

    async def books(self, http: httpx.AsyncClient, *, thorough: bool = False) -> dict[str, int]:
        params = {"name": "books", "arguments": {"thorough": thorough}, "_meta": CLAIM}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        fields = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "books",
        }
        answer = await http.post(self.url, json=body, headers=fields)
        return answer.json()["result"]["structuredContent"]  # type: ignore[no-any-return]

    async def quiet(self, patience: float, before: dict[str, int] | None = None) -> dict[str, int]:
        """Wait until nothing more is held for anybody, or no more than before, and return the books then; as they are, if that takes too long."""
        gc.collect()  # of connections that httpcore has forgotten, and not closed
        ends = time.monotonic() + 3 * patience + 60
        async with inspector() as http:
            books = await self.books(http, thorough=True)
            rest = before or next(iter(self.samples), books)
            while any(books[name] for name in ("sessions", "parked", "kept", "topics", "pending")) or (
                books["requests"] > 1 or books["tasks"] > rest["tasks"]
            ):
                if time.monotonic() > ends:
                    break
                await trio.sleep(0.5)
                books = await self.books(http, thorough=True)
            await trio.sleep(patience + 1)  # connections that are kept alive
            books = await self.books(http, thorough=True)
            while before is not None and any(books[name] > before[name] for name in HELD):
                if time.monotonic() > ends:
                    break
                await trio.sleep(0.5)
                books = await self.books(http, thorough=True)
            return books


def inspector() -> httpx.AsyncClient:
    """A client that opens a connection for each look: one that is kept may be ended by the server just when it is used again."""
    return httpx.AsyncClient(
        timeout=60, trust_env=False, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
    )


async def soak(
    url: str, seed: int, seconds: float, visitors: int, patience: float
) -> tuple[Soak, dict[str, int], dict[str, int]]:
    """Soak a server, and return what came of it, with what the server held before and after."""
    # A first round fills what is kept for good: caches, pools of threads, what is imported late.
    warm = Soak(url, -seed - 1)
    await _rounds(warm, min(seconds, max(2.0, seconds / 20)), visitors)
    before = await warm.quiet(patience)
    result = Soak(url, seed, faults=warm.faults)
    await _rounds(result, seconds, visitors)
    after = await result.quiet(patience, before)
    for name in HELD:
        if after[name] > before[name]:
            result.faults.append(f"{name}: {before[name]} before, {after[name]} after")
    if patience >= ENOUGH_PATIENCE:
        lost = {visit: n for visit, n in result.visits.items() if visit[1].startswith("lost")}
        result.faults += [f"{way} {outcome}, {count} times" for (way, outcome), count in lost.items()]
    grown = after["kilobytes"] - before["kilobytes"]
    if grown > TOLERATED_KILOBYTES:
        result.faults.append(f"{grown} KiB more after than before")
    return result, before, after


async def _rounds(result: Soak, seconds: float, visitors: int) -> None:
    until = time.monotonic() + seconds
    async with trio.open_nursery() as nursery:
        nursery.start_soon(result.look, until)
        for _ in range(visitors):
            nursery.start_soon(result.come_and_go, until)


def run(seed: int, seconds: float, visitors: int, patience: float, log: IO[bytes]) -> tuple[str, list[str]]:
    """Start a server, soak it, end it, and return a report and what was wrong."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "SOAK_PATIENCE": str(patience)}
    process = subprocess.Popen(
        [sys.executable, str(SERVER)], env=environment, stdout=subprocess.PIPE, stderr=log
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        result, before, after = trio.run(soak, url, seed, seconds, visitors, patience)
    finally:
        process.terminate()
        status = process.wait(120)
        process.stdout.close()
    if status not in {0, -signal.SIGTERM}:
        result.faults.append(f"the server ended with {status}")
    log.seek(0)
    said = log.read().decode()
    result.faults += [f"the server's log has {word!r}" for word in NEVER_SAID if word in said]
    return report(result, before, after), result.faults


def report(result: Soak, before: dict[str, int], after: dict[str, int]) -> str:
    """What came of it, for people."""
    most = {name: max((sample[name] for sample in result.samples), default=0) for name in after}
    visits = "\n".join(
        f"  {way} {outcome}: {count:,}" for (way, outcome), count in sorted(result.visits.items())
    )
    held = "\n".join(
        f"  {name}: {before[name]:,} before, {most[name]:,} at most, {after[name]:,} after" for name in after
    )
    unbalanced = sum(sample["missing"] != 0 for sample in result.samples)
    return (
        f"seed {result.seed}: {sum(result.visits.values()):,} visits\n{visits}\n"
        f"{len(result.samples)} samples, {unbalanced} of them unbalanced\n{held}"
    )


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True, help="How long clients come and go.")
@click.option("--seed", type=int, help="Who comes, and what is asked for; a random one unless given.")
@click.option(
    "--visitors", type=int, default=12, show_default=True, help="How many clients there are at once."
)
@click.option(
    "--patience",
    type=float,
    default=ENOUGH_PATIENCE,
    show_default=True,
    help="Seconds for which clients are waited for.",
)
@click.option(
    "--chaos",
    type=click.Choice(["redis", "valkey", "workers"]),
    help="Soak four replicas, or three workers, that are killed, stopped and cut off, instead.",
)
def main(minutes: float, seed: int | None, visitors: int, patience: float, chaos: str | None) -> None:
    """Soak a server, and say what came of it."""
    chosen = secrets.randbelow(10**6) if seed is None else seed
    click.echo(f"seed {chosen}, {minutes:g} minutes")
    if chaos is not None:
        sys.exit(_come_over(chaos, 60 * minutes, chosen))
    with tempfile.NamedTemporaryFile(suffix=".log", delete=False) as log:
        told, faults = run(chosen, 60 * minutes, visitors, patience, log)
    click.echo(told)
    for proxied in (False, True):
        click.echo(f"what arrives where{', through a proxy' if proxied else ''}:")
        checked = check_delivery(
            chosen, 15 * minutes, visitors, min(patience, DELIVERY_PATIENCE), proxied=proxied
        )
        click.echo(checked)
        faults += checked.faults
    for fault in faults:
        click.echo(f"WRONG: {fault}")
    click.echo(f"{len(faults)} faults; the server's log is {log.name}")
    sys.exit(1 if faults else 0)


def _come_over(system: str, seconds: float, seed: int) -> int:
    """Let chaos come over several processes, say what came of it, and return the exit status."""
    sys.path.append(str(Path(__file__).parents[1] / "e2e"))
    from chaos import SYSTEMS, chaos

    figures = trio.run(chaos, SYSTEMS[system](), seconds, seed)
    for line in (figures, *(f"WRONG: {fault}" for fault in figures.faults), f"{len(figures.faults)} faults"):
        click.echo(line)
    return 1 if figures.faults else 0


if __name__ == "__main__":
    main()
