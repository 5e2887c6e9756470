"""All exchanges, with the ways in which each is played."""

from itertools import chain
from typing import Final

import attrs

from tests.exchanges import bodies, heads, refusals, streams
from tests.exchanges.steps import Exchange
from tests.exchanges.ways import ALL, FIRST, Way


def _in_ways(exchange: Exchange, names: tuple[str, ...]) -> Exchange:
    """Give an exchange the ways of its table, unless it has ways of its own."""
    return exchange if exchange.ways else attrs.evolve(exchange, ways=names)


_PLAYED: Final = list(
    chain.from_iterable(
        (_in_ways(each, table.WAYS) for each in table.EXCHANGES)
        for table in (heads, bodies, streams, refusals)
    )
)
EXCHANGES: Final = {each.name: each for each in _PLAYED}
if len(EXCHANGES) != len(_PLAYED):
    raise ValueError("two exchanges have one name")


def ways_of(exchange: Exchange) -> list[Way]:
    """Return the ways in which an exchange is played, the first one first."""
    return [way for way in ALL if way is FIRST or way.name in exchange.ways]
