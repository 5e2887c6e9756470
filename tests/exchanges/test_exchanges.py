"""Each exchange has the recorded outcome in each way: status, fields, messages in their order, fates, and what handlers did."""

import pytest

from tests.exchanges import outcomes
from tests.exchanges.differences import DIFFERENCES, admitting
from tests.exchanges.tables import EXCHANGES

RECORDS = outcomes.read()
pytestmark = pytest.mark.once("plays each exchange in all ways by itself")


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
async def test_the_outcome_is_the_recorded_one_in_each_way(exchange, autojump_clock, monkeypatch):
    found = await outcomes.play_all(exchange, monkeypatch.setattr)
    assert outcomes.record(exchange, found) == RECORDS[exchange.name]


def test_each_record_is_of_an_exchange():
    assert [*RECORDS] == [*EXCHANGES]


def _differences():
    for record in RECORDS.values():
        for way, parts in record["except"].items():
            yield record["exchange"], way, frozenset(parts)


def test_each_difference_between_ways_is_intended():
    assert [each for each in _differences() if not any(admitting(*each))] == []


def test_each_intended_difference_is_there():
    there = {row for each in _differences() for row in admitting(*each)}
    assert [row for row in DIFFERENCES if row not in there] == []
