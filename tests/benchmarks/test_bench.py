"""The benchmarks measure what they say, and run."""

import attrs
import pytest
import trio

from benchmarks import aims, growth, machine, readme_table, report
from benchmarks.answers import Answer, WrongAnswer, check_echo, events
from benchmarks.load import percentile
from benchmarks.peers.peer import Absent
from benchmarks.process import running
from benchmarks.results import FOLDER, Measured, Missing, Results, Subject, read
from benchmarks.runner import Plan, Runner
from benchmarks.scenarios import SCENARIOS, session_bytes
from benchmarks.scenarios.chatter import check_chatter
from benchmarks.servers import OURS

ECHO = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello, world"}]}}'
BY_NAME = {peer.name: peer for peer in OURS}
SHORT_CALL = next(scenario for scenario in SCENARIOS if scenario.name == "short-call")


def measured(server, *rates, size=32):
    return Measured("short-call", server, size, [{"rate": rate} for rate in rates])


def results(*rows, missing=()):
    return Results(
        machine=machine.describe(),
        quick=True,
        seconds=60.0,
        subjects={"mcpbus": Subject("mcpbus", "Python", "mcpbus 1", "2026-07-28")},
        measured=list(rows),
        missing=list(missing),
    )


def answer(body, content_type="application/json", status="200 OK"):
    taken = Answer()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = head.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    assert [taken.feed(data[number : number + 1]) for number in range(len(data))].index(True) == len(data) - 1
    return taken


def test_an_answer_is_read_in_pieces_and_judged():
    check_echo(answer(ECHO))
    check_echo(answer(b"event: message\r\ndata: " + ECHO + b"\r\n\r\n", "text/event-stream"))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (ECHO.replace(b"hello", b"hullo"), "200 OK"),
        (ECHO.replace(b'"content"', b'"isError":true,"content"'), "200 OK"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}', "200 OK"),
        (b"hello, world", "200 OK"),
        (ECHO, "500 Internal Server Error"),
    ],
)
def test_another_answer_fails_the_measurement(body, status):
    with pytest.raises(WrongAnswer):
        check_echo(answer(body, status=status))


def test_notifications_that_are_missing_fail_the_measurement():
    said = b'data: {"method":"notifications/message","params":{"data":"clock=1"}}\n\n'
    stream = answer(2 * said + b"data: " + ECHO + b"\n\n", "text/event-stream")
    check_chatter(2, stream)
    with pytest.raises(WrongAnswer, match="2 of 3"):
        check_chatter(3, stream)


def test_events_are_taken_when_they_are_whole():
    assert events(b"id: 1\ndata: one\n\n: still here\n\ndata: tw") == [b"one", b""]


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


def test_percentiles_are_of_what_was_seen():
    assert [percentile(range(100), percent) for percent in (0, 50, 99)] == [0, 50, 99]
    with pytest.raises(WrongAnswer):
        percentile([], 50)


def test_growth_is_the_exponent():
    law = growth.fit([(10, 30.0), (100, 300.0), (1_000, 3_000.0)])
    assert (law.exponent, law.factor, law.fit) == pytest.approx((1.0, 3.0, 1.0))
    assert growth.fit([(10, 1.0), (100, 2.0)]) is None


def test_an_aim_is_kept_or_missed():
    lines = aims.table(
        results(measured("mcpbus", 60.0), measured("trio-httptools", 100.0), measured("rmcp", 70.0))
    )
    assert lines[2].endswith("| 0.60 | >= 0.5 | kept |")
    assert lines[3].endswith("| 0.86 | >= 1 | **missed** |")


def test_the_report_says_who_is_absent_and_names_no_host():
    missing = Missing("short-call", "rmcp", "cargo is not installed", failed=False)
    run = results(measured("mcpbus", 1000.0, 3000.0), missing=[missing])
    text = report.markdown(run, SCENARIOS)
    assert "| mcpbus | 2,000 (1,000 to 3,000) |" in text
    assert "- rmcp is absent: cargo is not installed" in text
    assert set(run.machine) == {"date", "processor", "processors", "system", "python", "packages"}


def test_results_come_back_as_they_were_saved(tmp_path):
    run = results(measured("mcpbus", 1.0))
    run.save(tmp_path)
    assert read(tmp_path) == run


def test_a_run_has_as_many_turns_as_it_says():
    peers = [BY_NAME["mcpbus"], BY_NAME["trio-httptools"]]
    assert Plan(rounds=2, sizes=(1, 2)).turns([SHORT_CALL], peers) == 8


def test_a_server_that_does_not_start_is_absent():
    peer = attrs.evolve(BY_NAME["mcpbus"], module="nowhere")
    with pytest.raises(Absent, match="No module named"), running(peer):
        pass


def test_servers_are_measured_in_turn():
    runner = Runner(
        Plan(quick=True, rounds=1, sizes=(2,)), [BY_NAME["mcpbus"], BY_NAME["trio-httptools"]], print
    )
    try:
        runner.run(SHORT_CALL)
    finally:
        runner.close()
    assert runner.missing == []
    assert [row.server for row in runner.measured] == ["mcpbus", "trio-httptools"]
    assert all(row.median("rate") > 0 and row.median("resident") > 1e6 for row in runner.measured)


def test_the_readme_has_the_table_of_the_report_that_is_committed():
    assert (FOLDER / "bench.json").exists()
    assert readme_table.current(readme_table.README.read_text()) == readme_table.render(read())
