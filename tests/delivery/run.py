"""Checks delivery from outside: ``make soak`` does, or ``python -m tests.delivery.run``.

Raw clients of all transports come to a server, are slow, are cut and come back, and note what arrives where. The server notes what it
sends, and the fate of each message. Once all is over, rules are checked on the two journals. A seed says who comes and does what, though
not when what happens.
"""

import itertools
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from tests.delivery.delivery_rules import Arrivals, Book, check
from tests.delivery.raw_clients import PATIENCE_SECONDS, SERVER, WAYS, Client, over_stdio

ROOT = Path(__file__).parents[2]
MOST_FAULTS = 20
"""After which there is nothing more to learn."""


@attrs.define
class Check:
    """One check, and what has come of it.

    Attributes:
        seed: What all dice are thrown with.
        patience: The seconds that servers wait.
        folder: Where their journals are.
        proxied: Whether a proxy stands before the server.
        store: Whether the server has an event store.
        visits: How many clients came, and how.
        messages: How many messages were sent, and have arrived.
        fates: How many copies have which fate.
        faults: What is wrong.
    """

    seed: int
    patience: float
    folder: Path
    proxied: bool
    store: bool
    visits: Counter[str] = attrs.field(factory=Counter)
    messages: Counter[str] = attrs.field(factory=Counter)
    fates: Counter[str] = attrs.field(factory=Counter)
    faults: list[str] = attrs.field(factory=list)

    def environment(self, journal: str) -> dict[str, str]:
        """Return the environment of a server that writes this journal."""
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CHECK_JOURNAL": str(self.folder / journal),
            "CHECK_PATIENCE": str(self.patience),
        }

    def read(self, journal: str, streams: list[Arrivals]) -> None:
        """Check the rules on the journal of a server that has ended, and on what its clients have noted."""
        lines = (self.folder / journal).read_text(encoding="utf-8").splitlines()
        book = Book.read(map(json.loads, lines))
        self.faults += check(book, streams, proxied=self.proxied)
        self.messages["sent"] += len(book.scopes)
        self.messages["arrived"] += sum(len(stream.named) for stream in streams)
        for fates in book.fates.values():
            self.fates.update(f"{fate} {reason or ''}".strip() for fate, reason in fates)

    def __str__(self) -> str:
        shown = ("clients", self.visits), ("messages", self.messages), ("receipts", self.fates)
        return "\n".join(
            f"{name}: {', '.join(f'{what} {count:,}' for what, count in sorted(counts.items()))}"
            for name, counts in shown
        )

    async def come_and_go(self, url: str, until: float, visitors: int) -> list[Arrivals]:
        """Have clients come until then, so many at once; return what they have noted of the server that they share."""
        streams: list[Arrivals] = []
        numbers = itertools.count(1)

        async def visitor() -> None:
            while time.monotonic() < until and len(self.faults) < MOST_FAULTS:
                number = next(numbers)
                dice = random.Random(f"{self.seed}/{number}")
                client = Client(url, f"c{number}", dice, self.store)
                if not self.proxied and dice.random() < 0.05:
                    journal = f"{client.tag}.jsonl"
                    await self._visit(
                        client, "stdio", partial(over_stdio, environment=self.environment(journal))
                    )
                    self.read(journal, client.streams)
                else:
                    [way] = dice.choices([*WAYS], [often for often, _ in WAYS.values()])
                    await self._visit(client, way, WAYS[way][1])
                    streams.extend(client.streams)

        async with trio.open_nursery() as nursery:
            for _ in range(visitors):
                nursery.start_soon(visitor)
        return streams

    async def _visit(self, client: Client, way: str, come: Callable[[Client], Awaitable[None]]) -> None:
        self.visits[way] += 1
        with trio.move_on_after(PATIENCE_SECONDS) as waiting:
            await come(client)
        if waiting.cancelled_caught:
            self.faults.append(f"{way} client {client.tag} has waited for {PATIENCE_SECONDS:g} s in vain")


class Program:
    """A server in a process of its own.

    Attributes:
        url: Where it is.
    """

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()

    def end(self) -> list[str]:
        """End it, and return what was wrong with it."""
        _, said = self._process.communicate(timeout=60)
        words = [word for word in ("Traceback", "ERROR") if word in said.decode()]
        faults = [f"the log has {word!r}: {said.decode()[-2_000:]}" for word in words]
        if self._process.returncode:
            faults.append(f"the server ended with {self._process.returncode}")
        return faults


def run(seed: int, seconds: float, visitors: int, patience: float, *, proxied: bool) -> Check:
    """Start a server, and perhaps a proxy before it; have clients come, end it, and check the rules."""
    store = not proxied and random.Random(seed).random() < 0.5
    with tempfile.TemporaryDirectory() as folder:
        result = Check(seed, patience, Path(folder), proxied, store)
        journal = "server.jsonl"
        programs = [Program(result.environment(journal), *(["store"] if store else []))]
        if proxied:
            programs.append(Program(result.environment("proxy.jsonl"), "proxy", programs[0].url))
        try:
            streams = trio.run(result.come_and_go, programs[-1].url, time.monotonic() + seconds, visitors)
        finally:
            for program in reversed(programs):
                result.faults += program.end()
        result.read(journal, streams)
    return result


@click.command()
@click.option("--minutes", type=float, default=1.0, show_default=True, help="How long clients come and go.")
@click.option("--seed", type=int, help="Who comes, and does what; a random one unless given.")
@click.option(
    "--visitors", type=int, default=8, show_default=True, help="How many clients there are at once."
)
@click.option("--patience", type=float, default=3.0, show_default=True, help="Seconds that a server waits.")
@click.option("--proxy", is_flag=True, help="Have all come through a proxy of the server.")
def main(minutes: float, seed: int | None, visitors: int, patience: float, proxy: bool) -> None:
    """Check what is delivered, and print what is wrong."""
    chosen = secrets.randbelow(10**6) if seed is None else seed
    click.echo(f"seed {chosen}, {minutes:g} minutes")
    result = run(chosen, 60 * minutes, visitors, patience, proxied=proxy)
    click.echo(result)
    for fault in result.faults[:MOST_FAULTS]:
        click.echo(f"WRONG: {fault}")
    click.echo(f"{len(result.faults)} faults")
    sys.exit(1 if result.faults else 0)


if __name__ == "__main__":
    main()
