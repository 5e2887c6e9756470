"""The benchmarks measure what they say, and run."""

import itertools
import re
import signal
import socket
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError

import attrs
import pytest
import trio

from benchmarks import aims, crowd, growth, machine, plots, readme_table, report, runner
from benchmarks.answers import FIRST_NUMBER, Answer, WrongAnswer, check_echo, check_fixed, events
from benchmarks.client import PATIENCE_SECONDS
from benchmarks.crowd import Stream
from benchmarks.engine import valkey
from benchmarks.load import Asking, Load, Question, percentile
from benchmarks.peers import PEERS
from benchmarks.peers.peer import Ability, Absent, Setting
from benchmarks.plan import Plan
from benchmarks.process import running
from benchmarks.results import FOLDER, Measured, Missing, Results, Subject, read
from benchmarks.runner import Runner
from benchmarks.scenarios import SCENARIOS, fan_out, session_bytes
from benchmarks.scenarios.chatter import check_chatter
from benchmarks.scenarios.drain import drained
from benchmarks.scenarios.fan_out import LEAST_CHANGES, ListenFanOut, Told
from benchmarks.scenarios.killed import is_to_be_made_again, until_first_answer
from benchmarks.scenarios.parts import PARTS
from benchmarks.scenarios.scenario import OfServers
from benchmarks.scenarios.workers import Slice, share_of_allowed
from benchmarks.servers import OURS

NUMBER = FIRST_NUMBER
ECHO = b'{"jsonrpc":"2.0","id":1000000000,"result":{"content":[{"type":"text","text":"hello, world 1000000000"}]}}'
BY_NAME = {peer.name: peer for peer in OURS}
SHORT_CALL = next(scenario for scenario in SCENARIOS if scenario.name == "short-call")


AIMED = (
    *(
        ("short-call", server, 32)
        for server in (
            "mcpbus",
            "mcpbus-asgi",
            "mcpbus-uvicorn",
            "trio-httptools",
            "bare-hypercorn",
            *aims.BEST_OF,
        )
    ),
    *(("mix", server, 0) for server in ("mcpbus", "python-sdk-uvicorn", "mcp-go", "go-sdk", "rmcp")),
    *((part.name, server, 0) for part in PARTS for server in ("mcpbus", *part.peers)),
    *(("chatter", server, 10) for server in ("mcpbus", *aims.BEST_OF)),
    *(("proxy", server, 32) for server in ("mcpbus", "fastmcp")),
    ("latency", "mcpbus", 0),
    ("fan-out-listens", "mcpbus", 100),
    ("fan-out-listens", "mcpbus", 1_000),
    ("fan-out-listens", "mcpbus", 5_000),
    ("idle-sessions", "mcpbus", 10_000),
    ("idle-listens", "mcpbus", 10_000),
    ("stalled", "mcpbus", 1),
    ("in-process", "mcpbus", 1),
    ("killed-worker", "mcpbus", 0),
    ("killed-replica", "mcpbus", 0),
    ("actors", "mcpbus", 0),
)


def measured(server, *rates, size=32):
    return Measured("short-call", server, size, [{"rate": rate, "cpu_us": 1e6 / rate} for rate in rates])


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
    check_echo(answer(ECHO), NUMBER)
    check_echo(answer(b"event: message\r\ndata: " + ECHO + b"\r\n\r\n", "text/event-stream"), NUMBER)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (ECHO.replace(b"hello", b"hullo"), "200 OK"),
        (ECHO.replace(b'"content"', b'"isError":true,"content"'), "200 OK"),
        (ECHO.replace(b'"id":1000000000', b'"id":1000000001'), "200 OK"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}', "200 OK"),
        (b"hello, world", "200 OK"),
        (ECHO, "500 Internal Server Error"),
    ],
)
def test_another_answer_fails_the_measurement(body, status):
    with pytest.raises(WrongAnswer):
        check_echo(answer(body, status=status), NUMBER)


def test_notifications_that_are_missing_fail_the_measurement():
    said = b'data: {"method":"notifications/message","params":{"data":"clock=1"}}\n\n'
    stream = answer(2 * said + b"data: " + ECHO + b"\n\n", "text/event-stream")
    check_chatter(2, stream, NUMBER)
    with pytest.raises(WrongAnswer, match="2 of 3"):
        check_chatter(3, stream, NUMBER)


def test_a_fixed_answer_has_any_number():
    check_fixed(answer(ECHO), NUMBER + 1)
    with pytest.raises(WrongAnswer):
        check_fixed(answer(ECHO.replace(b"hello", b"hullo")), NUMBER + 1)


@pytest.fixture
def repeated():
    own, its = socket.socketpair()
    with own, its:
        yield Asking(own, itertools.repeat(Question(b"call %d" % NUMBER, check_echo))), its


def http(body, content_type="application/json"):
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def numbered(question, body=ECHO):
    return body.replace(b"1000000000", question.removeprefix(b"call "))


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
def test_every_call_has_another_number_and_its_own_answer(repeated, content_type):
    conversation, server = repeated
    body = ECHO if content_type == "application/json" else b"data: " + ECHO + b"\n\n"
    asked = []
    for _ in range(4):
        conversation.ask()
        asked.append(server.recv(100))
        server.sendall(http(numbered(asked[-1], body), content_type))
        assert conversation.answered()
    assert len(set(asked)) == 4
    conversation.ask()
    server.sendall(http(numbered(asked[-1], body), content_type))  # the answer to the call before
    with pytest.raises(WrongAnswer, match="no answer to"):
        conversation.answered()


def test_an_answer_that_differs_is_judged_in_full(repeated):
    conversation, server = repeated
    for _ in range(2):
        conversation.ask()
        server.sendall(http(numbered(server.recv(100))))
        assert conversation.answered()
    conversation.ask()
    server.sendall(http(numbered(server.recv(100)).replace(b"hello", b"hullo")))
    with pytest.raises(WrongAnswer, match="hullo"):
        conversation.answered()


def test_an_answer_may_come_in_pieces(repeated):
    conversation, server = repeated
    for length in (7, 1_000, 120):
        conversation.ask()
        data = http(numbered(server.recv(100)))
        for begin in range(0, len(data), length):
            server.sendall(data[begin : begin + length])
            assert conversation.answered() == (begin + length >= len(data))


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


def test_a_figure_says_that_the_load_was_too_busy():
    busy = [{"rate": 50_000.0, "cpu_us": 20.0, "loader": loader} for loader in (0.8, 0.9, 0.9)]
    run = results(measured("mcpbus", 40_000.0), Measured("short-call", "trio-httptools", 32, busy))
    text = report.markdown(attrs.evolve(run, quick=False), SCENARIOS)
    assert "| 50,000 (50,000 to 50,000) (bounded by the load) |" in text
    assert "| 40,000 |" in text
    assert "| 0.80 (bounded by the load) | >= 0.5 | kept |" in text


def test_an_aim_is_kept_or_missed():
    lines = aims.table(
        results(measured("mcpbus", 60.0), measured("trio-httptools", 100.0), measured("rmcp", 70.0))
    )
    assert lines[2].endswith("| 0.60 | >= 0.5 | kept |")
    assert lines[3].endswith("| 0.86 | >= 1 | **missed** |")


def test_an_aim_that_is_missed_by_little_does_not_look_as_if_it_was_kept():
    lines = aims.table(results(measured("mcpbus", 49_990.0), measured("trio-httptools", 100_000.0)))
    assert lines[2].endswith("| 0.4999 | >= 0.5 | **missed** |")


def test_the_report_says_who_is_absent_and_names_no_host():
    missing = Missing("short-call", "rmcp", "cargo is not installed", failed=False)
    run = results(measured("mcpbus", 1000.0, 3000.0), missing=[missing])
    text = report.markdown(run, SCENARIOS)
    assert "| mcpbus | 2,000 (1,000 to 3,000) |" in text
    assert "- rmcp is absent: cargo is not installed" in text
    assert set(run.machine) == {"busy", "date", "processor", "processors", "system", "python", "packages"}


def test_a_quick_report_and_what_is_printed_judge_nothing():
    rows = [measured("mcpbus", 10.0), measured("trio-httptools", 100.0)]
    quick = results(*rows)
    whole = attrs.evolve(quick, quick=False)
    assert "**missed**" in report.markdown(whole, SCENARIOS)
    for text in (report.markdown(quick, SCENARIOS), report.figures(whole, SCENARIOS)):
        assert "missed" not in text
        assert "Short calls" in text


@pytest.mark.parametrize(("rate", "told"), [(90.0, False), (108.0, True)])
def test_who_is_faster_than_what_does_less_is_pointed_out(rate, told):
    text = report.markdown(results(measured("mcpbus", rate), measured("trio-httptools", 100.0)), SCENARIOS)
    assert ("has 1.08 times the rate of trio-httptools, which does less" in text) is told


@pytest.mark.parametrize(("others", "told"), [(0.05, False), (0.4, True)])
def test_a_busy_machine_is_pointed_out(others, told):
    run = attrs.evolve(results(measured("mcpbus", 1.0)), machine=machine.describe(others))
    assert ("others took 40% of its processors" in report.markdown(run, SCENARIOS)) is told


def test_how_busy_the_machine_is_is_a_share(monkeypatch):
    told = iter([[10, 0, 10, 50, 0, 0, 0, 0], [20, 0, 10, 75, 5, 0, 0, 0]])
    monkeypatch.setattr(machine, "_times", lambda: next(told))
    assert machine.busy(0) == pytest.approx(0.25)


def test_labels_are_beside_their_lines_and_not_on_one_another():
    assert plots._apart([0.1, 0.5]) == [0.1, 0.5]
    close = plots._apart([0.97, 0.98, 0.99])
    assert close[-1] == 1.0
    assert min(after - before for before, after in itertools.pairwise(close)) > 0.04


def test_each_server_has_a_color_of_its_own():
    assert {peer.name for peer in (*OURS, *PEERS)} == set(plots.COLORS)
    assert len(set(plots.COLORS.values())) == len(plots.COLORS)


def test_results_come_back_as_they_were_saved(tmp_path):
    run = results(measured("mcpbus", 1.0))
    run.save(tmp_path)
    assert read(tmp_path) == run


def turns(plan, scenario, *peers):
    return [(turn.peer and turn.peer.name, *turn.sizes) for turn in plan.turns(scenario, peers)]


def test_servers_take_turns_forwards_and_backwards():
    peers = [BY_NAME["mcpbus"], BY_NAME["trio-httptools"]]
    ours, limit = "mcpbus", "trio-httptools"
    each = [(ours,), (limit,), (limit,), (ours,)]
    expected = [(name, size) for size in (1, 2) for (name,) in each]
    assert turns(Plan(rounds=2, sizes=(1, 2)), SHORT_CALL, *peers) == expected


def test_what_has_an_aim_has_three_turns_or_more():
    for scenario, server, size in AIMED:
        [measured] = [known for known in SCENARIOS if known.name == scenario]
        peer = (
            (BY_NAME | {peer.name: peer for peer in PEERS})[server]
            if isinstance(measured, OfServers)
            else None
        )
        assert Plan().counts(measured, peer)[size] >= 3, (scenario, server)


def test_a_costly_size_is_measured_of_the_bus_and_of_what_is_compiled():
    [told] = [scenario for scenario in SCENARIOS if scenario.name == "fan-out-listens"]
    servers = {name for name, *sizes in turns(Plan(), told, *OURS, *PEERS) if 5_000 in sizes}
    assert servers == {"mcpbus", "mcp-go", "go-sdk", "rmcp"}


def test_the_estimates_keep_what_is_promised():
    peers = [*OURS, *PEERS]
    # It was half as long again on a slow machine.
    quick = [scenario for scenario in SCENARIOS if scenario.in_quick]
    assert Plan(quick=True).seconds(quick, peers) * 1.5 < 2 * 60
    assert Plan().seconds(SCENARIOS, peers) < 20 * 60


def test_a_checkout_that_is_not_installed_has_a_version(monkeypatch):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr(machine, "version", missing)
    assert re.fullmatch(r"\d+\.\d+\.\d+", machine.version_of("mcpbus"))
    assert machine.version_of("trio") == "not installed"


def test_a_server_that_does_not_start_is_absent():
    peer = attrs.evolve(BY_NAME["mcpbus"], module="nowhere")
    with pytest.raises(Absent, match="No module named"), running(peer):
        pass


class Deaf(Stream):
    """Has always something to read, which is never a change."""

    def changes(self):
        return 0


def test_a_stream_that_is_kept_alive_and_never_told_ends_the_measurement(monkeypatch):
    monkeypatch.setattr(crowd, "ARRIVAL_SECONDS", 0.01)
    own, its = socket.socketpair()
    with own, its:
        its.sendall(b": still here\n\n")
        streams = crowd.Crowd(None, Ability.LISTENS)
        streams.add(Deaf(own))
        with pytest.raises(WrongAnswer, match="1 of 1 streams were not told"):
            streams.arrivals()
        streams.close()


def test_a_turn_that_does_not_end_is_given_up(monkeypatch):
    def endless():
        yield 1, {"rate": 2.0}
        own, its = socket.socketpair()
        with own, its:
            own.recv(1)

    monkeypatch.setattr(runner, "TURN_SECONDS", 0.01)
    before = signal.getsignal(signal.SIGALRM)
    try:
        taken = runner._take(endless)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert taken == ([(1, {"rate": 2.0})], "no end within 0.01 s")


def test_servers_are_measured_in_turn():
    runs = Runner(
        Plan(quick=True, rounds=1, sizes=(2,)), [BY_NAME["mcpbus"], BY_NAME["trio-httptools"]], print
    )
    try:
        runs.run(SHORT_CALL)
    finally:
        runs.close()
    assert runs.missing == []
    assert [row.server for row in runs.measured] == ["mcpbus", "trio-httptools"]
    assert all(row.median("rate") > 0 and row.median("resident") > 1e6 for row in runs.measured)


def test_the_sizes_of_a_fan_out_take_turns(monkeypatch):
    order = []
    announce = Told.announce

    def noted(told, seconds):
        order.append(len(told._crowd.streams))
        announce(told, seconds)

    monkeypatch.setattr(Told, "announce", noted)
    monkeypatch.setattr(fan_out, "SLICE_SECONDS", 0.0)  # one change, and it is the other's turn
    with running(BY_NAME["mcpbus"]) as few, running(BY_NAME["mcpbus"]) as many:
        figures = dict(ListenFanOut().turn({1: few, 3: many}, 0.01))
    assert order == [1, 3] * (len(order) // 2)
    assert figures[1]["changes"] >= LEAST_CHANGES <= figures[3]["changes"]
    assert all(figures[size]["last_ms"] >= figures[size]["half_ms"] > 0 for size in (1, 3))


def test_each_size_of_a_fan_out_has_a_server_of_its_own():
    runs = Runner(Plan(quick=True, rounds=1, sizes=(1, 3)), [BY_NAME["mcpbus"]], print)
    try:
        runs.run(ListenFanOut())
    finally:
        runs.close()
    assert runs.missing == []
    assert [(row.server, row.size) for row in runs.measured] == [("mcpbus", 1), ("mcpbus", 3)]


def test_the_readme_has_the_table_of_the_report_that_is_committed():
    assert (FOLDER / "bench.json").exists()
    assert readme_table.current(readme_table.README.read_text()) == readme_table.render(read())


@pytest.mark.parametrize(("took", "idle", "share"), [(1.0, 0.0, 1.0), (1.25, 0.0, 0.8), (1.0, 1.0, 0.5)])
def test_two_workers_are_held_against_the_processor_time_that_was_there(took, idle, share):
    apart, workers = (
        Slice(Load([0.1] * 90, 1.0, 10, server_seconds, 0.1), idling)
        for server_seconds, idling in ((0.75, 0.25), (took, idle))
    )
    assert share_of_allowed(workers, apart) == pytest.approx(share)


ENDED = b'{"jsonrpc":"2.0","id":1000000000,"error":{"code":-32603,"message":"The process that served this has ended"}}'


@pytest.mark.parametrize(
    ("body", "status", "again"),
    [
        (ECHO, "200 OK", False),
        (ENDED, "200 OK", True),
        (ENDED.replace(b"ended", b"failed"), "200 OK", False),
        (b"{}", "503 Service Unavailable", True),
    ],
)
def test_a_call_is_made_again_if_its_process_has_ended(body, status, again):
    assert is_to_be_made_again(answer(body, status=status)) is again


def test_sessions_go_on_when_their_process_ends_and_when_it_is_killed():
    with valkey() as url, ExitStack() as stack:
        environment = {Setting.REDIS: url, Setting.LEASE: "1"}
        first, second, third = [
            stack.enter_context(running(BY_NAME["mcpbus"], environment)) for _ in range(3)
        ]
        assert 0 < drained(first, second, 20) < PATIENCE_SECONDS
        assert 0 < until_first_answer([second, third], second) < PATIENCE_SECONDS
