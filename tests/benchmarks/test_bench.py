"""The benchmarks measure what they say, and run."""

import attrs
import pytest
import trio

from benchmarks import http_bench, memory_bench, report


@pytest.fixture(scope="module")
def measured():
    # Each process of the load checks the answers that it gets against those that are to be measured.
    return http_bench.measure(rounds=1, seconds=0.1)


def test_every_server_answers_the_exchange_that_is_measured(measured):
    assert [server.name for server in measured] == list(http_bench.SERVERS)
    assert all(server.rate > 0 for server in measured)


def test_ratios_are_to_the_bare_application(measured):
    figures = dict(zip(http_bench.SERVERS, http_bench.rows(measured), strict=True))
    assert figures[http_bench.BASE][3] == "1.00"


def test_memory_comes_back():
    memory = trio.run(memory_bench.measure, 500)
    assert memory.idle > 500
    assert memory.left < memory.idle / 4


def test_a_report_is_one_table_that_names_no_host(tmp_path, capsys):
    report.write([report.Row("speed", "1 m/s", "", "2 m/s")], {"rounds": [1]}, tmp_path / "results")
    printed = capsys.readouterr().out
    assert "| speed | 1 m/s |  | 2 m/s |" in printed
    assert (tmp_path / "results" / "bench.md").read_text() == printed
    assert set(report.machine()) == {"date", "processor", "processors", "system", "python", "packages"}


def test_a_server_is_told_by_its_median_and_its_spread():
    server = attrs.evolve(http_bench.Measured("x"), rates=[1000.0, 3000.0, 2000.0])
    assert (server.rate, server.spread) == (2000.0, "1,000 to 3,000")


def test_ratios_are_made_round_by_round():
    # The machine was busy in the first round, for both of them.
    base = attrs.evolve(http_bench.Measured("base"), rates=[100.0, 1000.0, 1000.0])
    server = attrs.evolve(http_bench.Measured("x"), rates=[80.0, 800.0, 700.0])
    assert server.ratio_to(base) == 0.8
