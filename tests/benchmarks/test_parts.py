"""What one thing costs is measured beside the uniform call, in one table, by which its aim is judged."""

import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
import trio

from benchmarks import aims, machine, report, runner
from benchmarks.answers import WrongAnswer
from benchmarks.client import connect, exchange
from benchmarks.dialect import MODERN, Dialect
from benchmarks.load import Load, load, numbers
from benchmarks.load_http_sse import repeat_http_sse
from benchmarks.peers import PEERS
from benchmarks.peers.peer import Setting, Wire
from benchmarks.plan import Plan
from benchmarks.plots import PARTS as PICTURE
from benchmarks.process import Target, running
from benchmarks.results import Measured, Missing, Results
from benchmarks.runner import Runner
from benchmarks.scenarios import SCENARIOS, first_token, part
from benchmarks.scenarios.part import Part
from benchmarks.scenarios.parts import PARTS, USERS
from benchmarks.scenarios.scenario import OfServers
from benchmarks.servers import OURS
from benchmarks.traffic import Traffic
from benchmarks.usage import processes, processor_seconds
from benchmarks.wires import repeat_short_call

BY_NAME = {each.name: each for each in PARTS}
GUARDED = sorted(name for name, each in BY_NAME.items() if Setting.AUTHORIZATION in each.environment)
APART = ["http-sse", "http2-tls", "stdio", "tls"]
"""Over wires that a server has only if it is told so."""
[BUS] = [peer for peer in OURS if peer.name == "mcpbus"]


@pytest.fixture(scope="module")
def bus():
    with running(BUS, {Setting.RESUMPTION: "sqlite"}) as target:
        yield target


@pytest.fixture(scope="module")
def guarded_bus():
    with running(BUS, {Setting.AUTHORIZATION: "1"}) as target:
        yield target


def results(*rows, missing=()):
    return Results(machine.describe(), True, 1.0, {}, list(rows), list(missing))


def row(name, server="mcpbus", times=2.0, rate=1_000.0):
    turn = {"times": times, "cpu_us": 25 * times, "uniform_us": 25.0, "rate": rate, "loader": 0.1}
    return Measured(name, server, 0, [turn])


def test_names_and_titles_are_unique():
    assert len({each.name for each in PARTS}) == len({each.title for each in PARTS}) == len(PARTS)
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)


@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - {*GUARDED, *APART}))
def test_the_bus_answers_each_part(bus, name):
    assert_is_answered(BY_NAME[name], bus)


@pytest.mark.parametrize("name", APART)
def test_a_bus_that_is_told_so_answers_over_other_wires(name):
    with running(BUS, BY_NAME[name].environment) as bus:
        assert_is_answered(BY_NAME[name], bus)


def test_a_server_with_tls_is_warmed_up_over_tls():
    with running(BUS, BY_NAME["tls"].environment) as bus:
        conversations = repeat_short_call(bus, 2)
        assert len(load(bus, conversations, 0.0, least=1).latencies) >= 2
        for conversation in conversations:
            conversation.close()


def assert_is_answered(part, bus):
    with part.traffic.to(bus) as conversations:
        seen = load(bus, conversations, 0.0, least=1)
    assert seen.late == sum(each.at_once for each in conversations)
    assert len(seen.latencies) >= len(conversations)


def test_a_server_on_stdio_has_started_before_it_is_measured():
    stdio, number = BY_NAME["stdio"], next(numbers)
    with running(BUS, stdio.environment) as bus, stdio.traffic.to(bus) as [lines]:
        assert next(numbers) == number + 2, "no call has been made"
        assert not lines._asked, "it has not been answered"


def test_a_server_on_stdio_is_warm_before_it_is_measured():
    stdio, number = BY_NAME["stdio"], next(numbers)
    with running(BUS, stdio.environment) as bus, stdio.traffic.to(attrs.evolve(bus, warm_up=100)) as [lines]:
        assert next(numbers) > number + 100
        assert not lines._asked, "it has not been answered"


def at_once(_, function, *arguments):
    """Do in this process what is submitted to another one."""
    done = Future()
    done.set_result(function(*arguments))
    return done


def test_a_server_over_another_wire_is_warm_before_it_is_measured(monkeypatch):
    over = []
    monkeypatch.setattr(runner, "repeat_short_call", lambda target, _: over.append(target.wire) or [])
    monkeypatch.setattr(runner, "warm_up", lambda *_: None)
    monkeypatch.setattr(runner.ProcessPoolExecutor, "submit", at_once)
    runs = Runner(Plan(), [BUS], lambda *_: None)
    for name in APART:
        runs._kept(BY_NAME[name], BUS, BY_NAME[name].environment)
    runs.close()
    assert over == [Wire.HTTP_SSE, Wire.TLS]  # on stdio there is a server for each load, which sees to it


def test_what_a_server_on_stdio_had_is_closed_when_it_ends_before_it_has_answered():
    stdio = BY_NAME["stdio"]
    ends = attrs.evolve(BUS, module="none")
    with running(ends, stdio.environment) as target:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            with pytest.raises((WrongAnswer, BrokenPipeError)), stdio.traffic.to(target):
                pass
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_parts_over_other_wires_are_measured_of_every_peer_that_has_them():
    measured = {
        name: {peer.name for peer in [*OURS, *PEERS] if BY_NAME[name].measures(peer)}
        for name in ("http2", "http-sse", "stdio", "websocket", "proxy-headers", "await-1ms")
    }
    assert measured == {
        "http2": {"mcpbus", "python-sdk-hypercorn", "mcp-go", "go-sdk", "rmcp-http2"},
        "http-sse": {"mcpbus", "python-sdk-uvicorn", "fastmcp", "mcp-go", "go-sdk"},
        "stdio": {
            *("mcpbus", "python-sdk-uvicorn", "fastmcp", "typescript-sdk"),
            *("mcp-go", "go-sdk", "rmcp"),
        },
        "websocket": {"mcpbus"},
        "proxy-headers": {"mcpbus", "rmcp"},
        "await-1ms": {"mcpbus"},
    }


NOBODY = -1
"""No session of processes: of one that other tests share, a process may end while its time is read."""


class Streaming(BaseHTTPRequestHandler):
    """A server of HTTP+SSE in the words of some peers: its address is whole, lines end with CR and LF, and it comments."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.server.stream = self.wfile
        self.say(self.wfile, f"event: endpoint\r\ndata: http://{self.headers['Host']}/message?session=1")
        self.server.ended.wait()

    def do_POST(self):
        assert self.path == "/message?session=1"
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if message["method"] == "initialize":
            self.reply(message, {"protocolVersion": message["params"]["protocolVersion"]})
        elif message["method"] == "tools/call":
            text = self.server.text or message["params"]["arguments"]["text"]
            self.reply(message, {"content": [{"type": "text", "text": text}]})

    def reply(self, message, result):
        said = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        self.say(self.server.stream, ": ping")
        self.say(self.server.stream, f"event: message\r\ndata: {said}")

    @staticmethod
    def say(stream, event):
        stream.write(event.encode() + b"\r\n\r\n")
        stream.flush()

    def log_message(self, *_):
        pass


@contextmanager
def streaming(text=None):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Streaming)
    server.ended, server.text = threading.Event(), text
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Target("peer", server.server_port, NOBODY, MODERN, "2025-11-25", Wire.HTTP1, fixed=False)
    finally:
        server.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_peer_is_understood_over_http_sse_in_its_own_words():
    with streaming() as target:
        [client] = repeat_http_sse(target, 1)
        assert load(target, [client], 0.0, least=3).latencies
        client.close()


def test_a_wrong_answer_over_http_sse_is_told():
    with streaming(text="something else") as target:
        [client] = repeat_http_sse(target, 1)
        with pytest.raises(WrongAnswer, match="not what was said"):
            load(target, [client], 0.0, least=1)
        client.close()


@pytest.mark.parametrize("name", GUARDED)
def test_a_bus_that_wants_tokens_answers_those_who_bring_them(guarded_bus, name):
    with BY_NAME[name].traffic.to(guarded_bus) as conversations:
        assert load(guarded_bus, conversations, 0.0, least=1).late == len(conversations)
    with pytest.raises(WrongAnswer), part.UNIFORM.to(guarded_bus) as conversations:
        load(guarded_bus, conversations, 0.0, least=1)


def test_a_token_that_was_not_seen_before_is_told_beside_the_check_of_its_signature():
    figures = trio.run(first_token.measure, 0.0)
    assert 0 < figures["check_us"] < figures["whole_us"]


def test_every_call_has_been_made_before_it_is_measured(guarded_bus, monkeypatch):
    leasts = []

    def loaded(target, conversations, seconds, least):
        leasts.append(least * len(conversations))
        return Load([0.001], 0.1, 1, 1e-3, 0.01)

    monkeypatch.setattr(part, "load", loaded)
    list(BY_NAME["tokens"].turn(guarded_bus, guarded_bus, 0.0))
    assert leasts[0] >= USERS


def test_sessions_end_with_the_calls(bus):
    with BY_NAME["await-in-session"].traffic.to(bus) as conversations:
        load(bus, conversations, 0.0, least=1)
        [session, *_] = conversations[0]._pools[0]
    call = Dialect(bus.port, bus.session_revision, session).echo(1)
    with connect(bus.port) as sock:
        assert exchange(sock, call).status == 404


def test_a_part_is_told_by_the_processor_time_of_a_call_over_that_of_the_uniform_one(bus, monkeypatch):
    turns = []

    def loaded(target, conversations, seconds, least):
        turns.append((conversations[0].name, seconds))
        return Load([0.001] * 8, 0.1, 2, 3e-3 if conversations[0].name == "own" else 1e-3, 0.01)

    @contextmanager
    def named(traffic, target):
        yield [SimpleNamespace(name="uniform" if traffic is part.UNIFORM else "own")]

    monkeypatch.setattr(part, "load", loaded)
    monkeypatch.setattr(Traffic, "to", named)
    [(size, figures)] = BY_NAME["trace"].turn(bus, bus, 0.4)
    assert (size, figures["times"]) == (0, pytest.approx(3.0))
    assert (figures["cpu_us"], figures["uniform_us"]) == pytest.approx((300.0, 100.0))
    assert [name for name, _ in turns] == ["own", "uniform"] * 3
    assert turns[2:] == [("own", 0.1), ("uniform", 0.1)] * 2


def test_a_part_runs_beside_the_server_as_it_is_for_short_calls(monkeypatch):
    asked = []

    def noted(part, target, plain, seconds):
        asked.append((target, plain))
        yield 0, {"times": 1.0}

    monkeypatch.setattr(Runner, "_load", lambda _self, _scenario, _peer, measure: bool(list(measure())))
    monkeypatch.setattr(Runner, "_kept", lambda _self, _scenario, _peer, environment: dict(environment))
    monkeypatch.setattr(Part, "turn", noted)
    runs = Runner(Plan(quick=True), [BUS], lambda *_: None)
    runs.run(BY_NAME["token"])
    runs.run(BY_NAME["trace"])
    runs.close()
    assert asked == [({Setting.AUTHORIZATION: "1"}, {}), ({}, {})]


def test_an_estimate_counts_the_start_of_both():
    plan = Plan(quick=True)
    [one, two] = [plan.seconds([BY_NAME[name]], [BUS]) for name in ("trace", "token")]
    assert two - one == pytest.approx(plan.start_seconds)


def test_parts_are_measured_of_the_bus_and_of_whom_they_name_and_once_of_who_has_the_wire():
    plan = Plan()
    for each in PARTS:
        turns = [turn.peer.name for turn in plan.turns(each, [*OURS, *PEERS])]
        once = [peer.name for peer in PEERS if each.needs in peer.abilities]
        assert sorted(turns) == sorted(["mcpbus", *each.peers] * 3 + once)


def test_a_build_for_another_wire_is_measured_over_that_one_alone():
    [rmcp] = [peer for peer in PEERS if peer.name == "rmcp-http2"]
    measured = [each.name for each in SCENARIOS if isinstance(each, OfServers) and each.measures(rmcp)]
    assert measured == ["http2", "http2-streams"]


def test_the_report_has_one_table_of_all_parts():
    missing = [Missing("await", "rmcp", "cargo is not installed", failed=False)]
    measured = [row("trace", times=1.25), row("proxy-headers"), row("proxy-headers", "rmcp", 1.5, 1_500.0)]
    text = report.markdown(results(*measured, missing=missing), SCENARIOS, [PICTURE])
    assert text.count("## Parts") == text.count("| Part |") == text.count("](parts.svg)") == 1
    [trace] = [line for line in text.splitlines() if "(`trace`)" in line]
    assert trace.split(" | ")[1:4] == ["mcpbus", "1.25", "31.2"]
    [peer] = [line for line in text.splitlines() if "(`proxy-headers`) | rmcp" in line]
    assert peer.endswith(" 1.50 |")
    assert "- rmcp is absent: cargo is not installed, in a handler that awaits once" in text


def test_the_aims_of_a_part_are_those_of_its_row():
    run = results(row("proxy-headers", times=1.4), row("proxy-headers", "rmcp", rate=500.0))
    lines = [line for line in aims.table(run) if "proxy" in line]
    assert [line.split("| ")[-3:] for line in lines] == [
        ["1.40 ", "<= 1.3 ", "**missed** |"],
        ["2.00 ", ">= 1 ", "kept |"],
    ]


def test_the_aims_of_the_mixture_are_of_processor_time():
    run = results(
        *(Measured("mix", name, 0, [{"cpu_us": used}]) for name, used in (("mcpbus", 50.0), ("rmcp", 60.0)))
    )
    [line] = [line for line in aims.table(run) if "mixture" in line]
    assert "rmcp over mcpbus | 1.20 | >= 1 | kept |" in line


def test_processor_time_is_that_of_the_process_and_finer_than_a_tick():
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(time.process_time(), flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        told = float(process.stdout.readline())
        read = processor_seconds(process.pid)
        process.communicate(b"\n")
    assert told <= read < told + 0.5
    assert read * 100 % 1 != 0


def test_what_a_server_starts_is_counted_although_it_is_a_session_of_its_own():
    child = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\ninput()"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        while processor_seconds(process.pid) < 0.2:
            assert process.poll() is None
        assert len(processes(process.pid)) == 2
        process.communicate(b"\n")
    assert processes(process.pid) == []


def test_a_quick_run_measures_parts_of_the_bus_alone_unless_others_are_asked_for():
    plan = Plan(quick=True)
    [rmcp] = [peer for peer in PEERS if peer.name == "rmcp"]
    assert [turn.peer for turn in plan.turns(BY_NAME["await"], [BUS, rmcp])] == [BUS]
    assert [turn.peer for turn in plan.turns(BY_NAME["await"], [rmcp])] == [rmcp]
