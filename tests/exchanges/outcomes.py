"""The recorded outcomes of all exchanges; `python -m tests.exchanges.outcomes [PATTERN]` records them.

Each line of `outcomes.jsonl` has the name of an exchange, its outcome in the first way, and of each other way the parts that differ.
Review the difference of the file before you commit it: it is the change of behaviour that a client sees.
"""

import json
import logging
import sys
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing

from tests.exchanges.differences import differing, flatten
from tests.exchanges.player import play
from tests.exchanges.steps import Exchange
from tests.exchanges.tables import EXCHANGES, ways_of
from tests.exchanges.ways import FIRST, Patch, open_doors

FILE: Final = Path(__file__).with_name("outcomes.jsonl")


async def play_all(exchange: Exchange, patch: Patch) -> dict[str, dict[str, Any]]:
    """Play an exchange in all of its ways, and return the outcomes by the names of the ways.

    Args:
        exchange: The exchange.
        patch: Replaces an attribute until the caller takes that back.
    """
    found = {}
    for linked in (False, True):
        ways = [way for way in ways_of(exchange) if (way.transport == "link") is linked]
        if ways:
            async with open_doors(exchange.place, linked=linked, patch=patch) as doors:
                for way in ways:
                    found[way.name] = flatten(await play(exchange, doors, way))
    return found


def record(exchange: Exchange, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what is recorded of an exchange."""
    first = found[FIRST.name]
    others = {way: differing(first, outcome) for way, outcome in found.items()}
    return {
        "exchange": exchange.name,
        "outcome": first,
        "except": {way: parts for way, parts in others.items() if parts},
    }


def read() -> dict[str, dict[str, Any]]:
    """Return the records by the names of their exchanges."""
    records = [json.loads(line) for line in FILE.read_text().splitlines()]
    return {each["exchange"]: each for each in records}


def main(pattern: str = "*") -> None:
    """Record the exchanges whose names match a pattern, and keep the other records."""
    logging.disable(logging.CRITICAL)
    kept = read() if FILE.exists() else {}
    lines = []
    for exchange in EXCHANGES.values():
        if exchange.name in kept and not fnmatchcase(exchange.name, pattern):
            recorded = kept[exchange.name]
        else:
            with pytest.MonkeyPatch.context() as patch:
                clock = trio.testing.MockClock(autojump_threshold=0)
                found = trio.run(partial(play_all, exchange, patch.setattr), clock=clock)
            recorded = record(exchange, found)
        lines.append(json.dumps(recorded, sort_keys=True))
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
