"""A short call that comes to another process than has its session: no task waits for it, and the books say what became of its answer."""

import gc

import pytest
from several import at, kill, open_buses, quiet
from test_forwarding import call, make, text

from mcpbus.cluster import inline_forward
from mcpbus.cluster.cluster_endpoint import ClusterEndpoint
from mcpbus.cluster.inline_forward import InlineForward
from mcpbus.cluster.link import Link
from mcpbus.cluster.messages import FrameKind, decode_answered
from mcpbus.protocol.routes import Reason
from mcpbus.testing import MemoryDirectory, open_probe
from mcpbus.testing.over_http1 import StrictApp


@pytest.fixture
async def far(request, autojump_clock):
    """The buses, a session of the first one as it is reached over HTTP/2, say, at the second, and the directory that has them."""
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        _, there = [bus.asgi() for bus in buses]  # they all make the same endpoints
        async with open_probe(there, shell=getattr(request, "param", "http2")) as probe:
            yield buses, at(await probes[0].initialize(), probe), directory
            probe.disconnect()


@pytest.fixture
def in_a_task(monkeypatch):
    """How often a task has forwarded a request."""
    forward, calls = ClusterEndpoint._forward, []

    def count(*args, **options):
        calls.append(args)
        return forward(*args, **options)

    monkeypatch.setattr(ClusterEndpoint, "_forward", count)
    return calls


async def test_no_task_waits_for_a_short_answer(far, in_a_task, autojump_clock):
    buses, session, _ = far
    before = buses[0].ledger.delivered
    assert text(await call(session, "echo", text="hello").reply()) == "hello"
    await quiet(buses)
    assert not in_a_task
    assert buses[0].ledger.delivered == before + 1
    assert buses[1].ledger.emitted == 0
    assert not any(buses[0].ledger.pending.values())


@pytest.mark.parametrize("far", ["http1", "http2"], indirect=True)
async def test_nothing_is_left_of_a_request_that_was_answered(far, autojump_clock):
    buses, session, _ = far
    for word in ("one", "two", "three"):
        assert text(await call(session, "echo", text=word).reply()) == word
    await quiet(buses)
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, InlineForward)]


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.parametrize("shell", ["http1", "http2"])
async def test_a_short_call_is_passed_on_at_the_end_of_its_turn(shell, logs, monkeypatch, autojump_clock):
    written = []
    write_now = Link.write_now
    monkeypatch.setattr(Link, "write_now", lambda link: written.append(link) or write_now(link))
    async with open_buses(make, access_log=logs) as (buses, probes):
        _, there = [bus.asgi(access_log=logs) for bus in buses]
        async with open_probe(there, shell=shell) as probe:
            session = at(await probes[0].initialize(), probe)
            await quiet(buses)
            written.clear()
            assert text(await call(session, "echo", text="hello").reply()) == "hello"
            assert written[0] is buses[1].node.link(buses[0].node.home)
            probe.disconnect()


@pytest.mark.parametrize("words", ["x" * 5000, "x" * 300_000])
async def test_a_task_waits_for_a_long_one(words, far, in_a_task, autojump_clock):
    _, session, _ = far
    assert text(await call(session, "echo", text=words).reply()) == words
    assert len(in_a_task) == 1


@pytest.mark.parametrize("far", ["http1"], indirect=True)
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_long_answer_is_delivered_once_its_client_has_it(far, leaves, autojump_clock):
    """What the other process has taken from the link is not at the client yet."""
    buses, session, _ = far
    holding = call(session, "echo", text="x" * 300_000)
    holding.stall()
    await quiet(buses)
    ledger = buses[0].ledger
    before = ledger.delivered, ledger.discarded[Reason.LOST]
    assert sum(ledger.pending.values()) == 1
    if leaves:
        holding.disconnect()
    else:
        holding.resume()
    await quiet(buses)
    after = ledger.delivered, ledger.discarded[Reason.LOST]
    assert (after[0] - before[0], after[1] - before[1]) == ((0, 1) if leaves else (1, 0))


async def test_a_task_goes_on_with_a_stream(far, in_a_task, autojump_clock):
    _, session, _ = far
    counting = call(session, "count", token="t")
    assert [(await counting.message())["params"]["progress"] for _ in range(3)] == [0, 1, 2]
    assert text(await counting.reply()) == "counted"
    assert len(in_a_task) == 1


async def test_a_link_that_is_lost_is_told_of(far, autojump_clock):
    buses, session, directory = far
    held = call(session, "hold")
    await quiet(buses)
    await directory.cut()
    assert "is not known" in (await held.reply())["error"]["message"]


async def test_a_client_that_goes_is_told_of(far, autojump_clock):
    buses, session, _ = far
    held = call(session, "hold")
    await quiet(buses)
    held.disconnect()
    await quiet(buses)
    assert not buses[0].node.links.by_home[buses[1].node.home][0]._channels


async def test_an_answer_that_finds_its_client_gone_is_lost(far, monkeypatch, autojump_clock):
    buses, session, _ = far
    link = buses[1].node.link(buses[0].node.home)
    send, before = link.send, buses[0].ledger.discarded[Reason.LOST]
    monkeypatch.setattr(
        link, "send", lambda kind, *rest: send(FrameKind.GONE if kind == FrameKind.WRITTEN else kind, *rest)
    )
    await call(session, "echo", text="hello").reply()
    await quiet(buses)
    assert buses[0].ledger.discarded[Reason.LOST] == before + 1


@pytest.mark.parametrize("far", ["http1", "http2"], indirect=True)
async def test_an_answer_that_http_cannot_say_is_lost(far, monkeypatch, autojump_clock):
    def say_what_nobody_can(payload):
        said = decode_answered(payload)
        said.headers.append((b"x-note", b"a line\r\nand another one"))
        return said

    monkeypatch.setattr(inline_forward, "decode_answered", say_what_nobody_can)
    monkeypatch.setattr(StrictApp, "report", lambda *failure: reported.append(failure))
    reported = []
    buses, session, _ = far
    before = buses[0].ledger.discarded[Reason.LOST]
    assert (await call(session, "echo", text="hello").ended()).status == 500
    assert len(reported) == 1
    await quiet(buses)
    assert buses[0].ledger.discarded[Reason.LOST] == before + 1
    assert not any(buses[0].ledger.pending.values())


async def test_a_session_that_has_moved_is_looked_for_once(in_a_task, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        *_, there = [bus.asgi() for bus in buses]
        async with open_probe(there, shell="http2") as probe:
            session = await probes[0].initialize()
            await kill(buses[0], directory)
            assert (await at(session, probes[1]).request("ping").ended()).status == 200
            assert len(buses[1].sessions) == 1
            in_a_task.clear()
            for word in ("one", "two", "three"):
                assert text(await call(at(session, probe), "echo", text=word).reply()) == word
                await quiet(buses)
            assert len(in_a_task) == 1
            probe.disconnect()
