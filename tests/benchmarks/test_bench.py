"""The benchmarks measure what they say, and run."""

import pytest
import trio

from benchmarks.results import Measured
from benchmarks.scenarios import session_bytes


def measured(server, *rates):
    return Measured("short-call", server, 32, [{"rate": rate} for rate in rates])


def test_memory_comes_back():
    memory = trio.run(session_bytes.measure, 500)
    assert memory["idle"] > 500
    assert memory["left"] < memory["idle"] / 4


def test_a_server_is_told_by_its_median_and_its_spread():
    server = measured("x", 1000.0, 3000.0, 2000.0)
    assert (server.median("rate"), server.spread("rate")) == (2000.0, (1000.0, 3000.0))


def test_ratios_are_made_turn_by_turn():
    # The machine was busy in the first turn, for both of them.
    base = measured("base", 100.0, 1000.0, 1000.0)
    assert measured("x", 80.0, 800.0, 700.0).ratio(base, "rate") == pytest.approx(0.8)
