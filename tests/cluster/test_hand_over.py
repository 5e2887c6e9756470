"""A process that ends in order: others go on with its sessions, whose clients are told nothing, or to come back at once."""

from types import SimpleNamespace

import pytest
import trio
from several import at, open_buses, quiet
from test_adoption import only
from test_forwarding import ANSWER, CHANGED, call, make, text
from test_held import SAID, held, said, say
from test_taken_over import take_over, unanswered

from mcpbus import Limits
from mcpbus.cluster import takeover
from mcpbus.cluster.cluster_endpoint import ClusterEndpoint
from mcpbus.cluster.takeover import SessionHandoffs
from mcpbus.core.receipt import DELIVERED, LOST, MOVED, Fate, Location
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.routes import Reason
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import MemoryDirectory, open_bus, open_probe


async def test_a_session_goes_on_elsewhere_as_soon_as_nothing_of_it_is_in_flight(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        busy = await probes[0].initialize()
        counting = call(busy, "count", token="t")
        await counting.message()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(buses[0].drain, 10)
            await trio.sleep(0.5)
            assert [len(bus.sessions) for bus in buses] == [1, 0, 0]
            assert (await at(session, probes[1]).request("ping").ended()).status == 200
            assert [len(bus.sessions) for bus in buses] == [1, 1, 0]
            # What comes for the other one waits for its call, and goes on elsewhere then, wherever it came.
            begun = trio.current_time()
            asked = [at(busy, probe).request("ping", id=f"p{n}") for n, probe in enumerate(probes)]
            assert [(await each.ended()).status for each in asked] == [200] * 3
            assert trio.current_time() - begun > 2
            assert text(counting.messages[-1]) == "counted"
        assert buses[0].statistics().sessions == 0
        assert sum(len(bus.sessions) for bus in buses) == 2
        assert (await at(session, probes[2]).request("ping").ended()).status == 200


async def test_a_get_through_another_process_goes_on_over_the_same_connection(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        stream = await at(session, probes[1]).get().begun()
        receipts = say(buses[0], 1)
        await quiet(buses)
        receipts += say(buses[0], 2)
        await buses[0].drain(5)
        await quiet(buses)
        assert str(receipts[0].fate) == "delivered"
        assert str(receipts[1].fate) in {"delivered", "moved"}  # as its writer was faster, or not
        say(buses[1], 3)
        await quiet(buses)
        assert said(stream) == [1, 2, 3]
        assert not stream.complete
        assert not stream.aborted
        assert only(buses[1]).listening


@pytest.mark.parametrize("way", [0, 1], ids=["its session is here", "its session is there"])
async def test_a_get_at_the_process_that_ends_is_told_to_come_back_at_once(way, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[way].initialize()
        stream = await at(session, probes[0]).get().begun()
        say(buses[way], 1)
        await quiet(buses)
        begun = trio.current_time()
        await buses[0].drain(5)
        assert trio.current_time() - begun < 1
        assert (await stream.ended()).complete
        assert b"retry: 0" in stream.body
        assert said(stream) == [1]
        if way:
            say(buses[1], 2)
        again = await at(session, probes[1]).get().begun()
        say(buses[1], 3)
        await quiet(buses)
        assert said(again) == ([2, 3] if way else [3])


async def test_a_get_that_comes_to_a_process_that_ends_is_told_so_too(autojump_clock):
    async with open_buses(make, 2) as (buses, probes):
        session = await probes[0].initialize()
        buses[1].node.hand_over.begin()
        stream = await at(session, probes[1]).get().begun()
        with trio.fail_after(1):
            await stream.ended()
        assert stream.complete


async def test_who_has_been_told_to_come_back_is_not_told_so_again_where_it_came_back(autojump_clock):
    async with open_buses(make, 3) as (buses, probes):
        session = await probes[1].initialize()
        stream = await at(session, probes[0]).get().begun()
        stream.stall()  # the end is on its way for a while
        buses[0].node.hand_over.begin()
        await quiet(buses)
        again = await at(session, probes[2]).get().begun()
        buses[0].node.hand_over.hurry()
        await quiet(buses)
        say(buses[1], 1)
        await quiet(buses)
        assert said(again) == [1]
        assert not again.complete


async def test_what_is_held_goes_with_its_session(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        receipts = say(buses[0], 1, 2)
        (change,) = buses[0].tools_changed()
        await buses[0].drain(5)
        assert {receipt.fate for receipt in receipts} == {MOVED}
        assert str(change.fate).startswith("discarded")
        assert (buses[0].ledger.moved, held(directory)) == (2, 2)
        stream = await at(session, probes[1]).get().begun()
        await quiet(buses)
        assert said(stream) == [1, 2]
        assert [message["method"] for message in stream.messages].count(CHANGED) == 1
        assert (buses[1].ledger.adopted, held(directory)) == (2, 0)


@pytest.mark.parametrize("numbers", [[2], [1, 2]], ids=["nothing was held", "something was held"])
@pytest.mark.parametrize(
    ("before", "after", "failures"),
    [(0.9, 0, 0), (0, 0.9, 0), (0, 0.9, 1)],
    ids=["before it is done", "before that is known", "before that is known at last"],
)
async def test_what_is_said_while_its_session_is_let_go_of_goes_with_it(  # noqa: PLR0917
    before, after, failures, numbers, autojump_clock, monkeypatch
):
    directory, release, asked = MemoryDirectory(), MemoryDirectory.release, []

    async def be_slow(*told):
        asked.append(told)
        await trio.sleep(before)
        await release(directory, *told)
        await trio.sleep(after)
        if len(asked) <= failures:
            raise OSError("no answer")

    monkeypatch.setattr(directory, "release", be_slow)
    async with open_buses(make, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        session = await probes[0].initialize()
        kept = say(buses[0], *numbers[:-1])
        await quiet(buses)
        nursery.start_soon(buses[0].drain, 10)
        await trio.sleep(0.5)
        assert asked
        (late,), (change,) = say(buses[0], numbers[-1]), buses[0].tools_changed()
        stream = await at(session, probes[1]).get().begun(timeout=20)
        await trio.sleep(5)
        assert said(stream) == numbers
        assert [message["method"] for message in stream.messages].count(CHANGED) == 1
        assert [receipt.fate for receipt in kept] == [MOVED] * len(kept)
        assert (late.fate, change.fate) == (DELIVERED, Fate.discarded(Reason.SUPERSEDED))
        assert (buses[1].ledger.adopted, held(directory)) == (len(numbers), 0)


async def test_and_its_sender_is_told_if_nobody_comes_for_it(autojump_clock, monkeypatch):
    directory, release = MemoryDirectory(), MemoryDirectory.release

    async def be_slow(*told):
        await release(directory, *told)
        await trio.sleep(0.9)

    monkeypatch.setattr(directory, "release", be_slow)
    async with open_buses(make, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        await probes[0].initialize()
        nursery.start_soon(buses[0].drain, 5)
        await trio.sleep(0.5)
        (receipt,) = say(buses[0], 1)
        assert await receipt.settled(timeout=10) == Fate.discarded(Reason.UNREACHABLE)
        assert not any(buses[0].ledger.pending.values())


async def test_and_a_process_that_ends_waits_for_a_moment_until_somebody_does(autojump_clock, monkeypatch):
    directory, release = MemoryDirectory(), MemoryDirectory.release

    async def be_slow(*told):
        await release(directory, *told)
        await trio.sleep(0.9)

    async def come_late():
        await trio.sleep(0.5)
        await session.request("ping").ended()

    monkeypatch.setattr(directory, "release", be_slow)
    opening = open_bus(make(), cluster=directory.cluster())
    async with opening as there, open_probe(there.asgi()) as probe, trio.open_nursery() as nursery:
        async with open_bus(make(), cluster=directory.cluster()) as here:
            async with open_probe(here.asgi()) as first:
                session = at(await first.initialize(), probe)
                nursery.start_soon(here.drain, 5)
                await trio.sleep(0.5)
                say(here, 1)
                await here.node.hand_over.wait_none()
                first.disconnect()
            nursery.start_soon(come_late)
        stream = await session.get().begun()
        await quiet([there])
        assert said(stream) == [1]
        probe.disconnect()


async def test_what_could_not_be_kept_is_said_by_who_has_its_session_already(autojump_clock, monkeypatch):
    """A process that is told to end while it does not know yet that another one has taken a session over."""
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        with monkeypatch.context() as patch:
            unanswered(patch, "append_held", buses[0].node.home, done=False)
            (receipt,) = say(buses[0], 1)
            await quiet(buses)
            await take_over(directory, buses, probes[1], session)
        stream = await at(session, probes[1]).get().begun()
        directory.renew(buses[0].node.home)
        assert only(buses[0]).id == session.id
        await buses[0].drain(5)
        assert await receipt.settled(timeout=10) == DELIVERED
        assert said(stream) == [1]


async def test_what_could_not_be_kept_before_is_kept_then(autojump_clock, monkeypatch):
    directory = MemoryDirectory()

    async def fail(*_):
        raise OSError("away")

    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        monkeypatch.setattr(directory, "append_held", fail)
        (receipt,) = say(buses[0], 1)
        await quiet(buses)
        assert receipt.location is Location.HELD
        monkeypatch.undo()
        await buses[0].drain(5)
        assert receipt.fate == MOVED
        stream = await at(session, probes[1]).get().begun()
        await quiet(buses)
        assert said(stream) == [1]


async def test_what_leaves_the_directory_while_its_process_ends_is_not_said_to_go_on(
    autojump_clock, monkeypatch
):
    """Nobody knows whether it has: here it is not sent, and perhaps nowhere else."""
    directory, take = MemoryDirectory(), MemoryDirectory.pop_held

    async def fail(ownership, names):
        await take(directory, ownership, names)
        raise OSError("the connection was lost")

    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        (receipt,) = say(buses[0], 1)
        await quiet(buses)
        monkeypatch.setattr(directory, "pop_held", fail)
        stream = await session.get().begun()
        await quiet(buses)
        assert (receipt.location, held(directory)) == (Location.REPLICATED, 0)
        await buses[0].drain(5)
        assert (receipt.fate, said(stream)) == (LOST, [])


async def test_what_waits_for_a_client_that_does_not_read_goes_with_its_session(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        stream = await session.get().begun()
        await quiet(buses)
        stream.stall()
        receipts = say(buses[0], 1)
        await quiet(buses)
        receipts += [*say(buses[0], 2), only(buses[0]).log("error", "a line")]
        await quiet(buses)
        assert [receipt.location for receipt in receipts] == [
            Location.WRITING,
            Location.OUTBOX,
            Location.OUTBOX,
        ]
        begun = trio.current_time()
        await buses[0].drain(5)
        assert trio.current_time() - begun == pytest.approx(5, abs=0.1)
        assert [str(receipt.fate) for receipt in receipts[1:]] == ["moved"] * 2
        again = await at(session, probes[1]).get().begun()
        await quiet(buses)
        assert said(again) == [2]
        assert [m["method"] for m in again.messages].count("notifications/message") == 1


async def test_a_call_that_outlasts_the_drain_is_ended_and_its_session_goes_on(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        holding = call(session, "hold")
        await quiet(buses)
        await buses[0].drain(5)
        assert (await holding.reply())["error"]["code"] == -32603
        assert (await at(session, probes[1]).request("ping").ended()).status == 200
        assert len(buses[1].sessions) == 1


async def test_a_question_in_flight_is_answered_while_its_session_leaves(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize(capabilities={"elicitation": {}})
        asking = call(at(session, probes[1]), "ask")
        question = await asking.message()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(buses[0].drain, 10)
            await trio.sleep(1)
            answered = await at(session, probes[1]).answer(question["id"], ANSWER).ended()
            assert answered.status == 202
            assert "Ada" in text(await asking.message())
        assert (await at(session, probes[1]).request("ping").ended()).status == 200


async def test_a_session_that_is_deleted_while_it_leaves_has_ended(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        call(session, "hold")
        await quiet(buses)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(buses[0].drain, 10)
            await trio.sleep(1)
            waiting = at(session, probes[1]).request("ping", id="w")
            await quiet(buses[1:])
            assert (await at(session, probes[1]).delete().ended()).status == 204
            assert (await waiting.ended()).status == 404
        assert not directory._kept


async def test_a_process_that_ends_takes_nothing_over(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        sessions = [await probe.initialize() for probe in probes[:2]]
        await buses[1].drain(0)
        await buses[0].drain(0)
        for session in sessions:
            assert (await at(session, probes[0]).request("ping").ended()).status == 200
        assert [len(bus.sessions) for bus in buses] == [0, 0, 2]


async def test_where_the_directory_is_away_they_are_kept_as_they_were(autojump_clock, monkeypatch):
    directory = MemoryDirectory()

    async def fail(*_):
        raise OSError("away")

    async with open_buses(make, 2, directory=directory, limits=Limits()) as (buses, probes):
        session = await probes[0].initialize()
        (receipt,) = say(buses[0], 1)
        await quiet(buses)
        monkeypatch.setattr(directory, "release", fail)
        await buses[0].drain(5)
        monkeypatch.undo()
        assert receipt.fate == MOVED
        directory._living.pop(buses[0].node.home)
        await directory.cut()
        stream = await at(session, probes[1]).get().begun()
        await quiet(buses[1:])
        assert said(stream) == [1]
        assert SAID in {message["method"] for message in stream.messages}


async def test_and_what_could_not_be_kept_is_not_said_to_end_with_its_session(autojump_clock, monkeypatch):
    directory = MemoryDirectory()

    async def fail(*_):
        raise OSError("away")

    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        for name in ("append_held", "release"):
            monkeypatch.setattr(directory, name, fail)
        (receipt,), (change,) = say(buses[0], 1), buses[0].tools_changed()
        await quiet(buses)
        assert receipt.location is Location.HELD
        await buses[0].drain(5)
        assert receipt.fate == Fate.discarded(Reason.UNREACHABLE)
        assert change.fate == Fate.discarded(Reason.SUPERSEDED)
        monkeypatch.undo()
        directory._living.pop(buses[0].node.home)
        await directory.cut()
        assert (await at(session, probes[1]).request("ping").ended()).status == 200  # it goes on


async def test_and_so_are_their_events(autojump_clock, monkeypatch):
    directory, store = MemoryDirectory(), MemoryEventStore()

    async def fail(*_):
        raise OSError("away")

    async with open_buses(make, directory=directory, stores=[store] * 2) as (buses, probes):
        session = await probes[0].initialize("2025-11-25")
        await call(session, "count", token=1).ended()
        monkeypatch.setattr(directory, "release", fail)
        await buses[0].drain(5)
        await quiet(buses)
        assert len(store) > 0


def make_asking(asked):
    """A server that takes two seconds to find who sends a request, once `asked` is not empty; what comes then is noted there."""
    server = make()

    async def authenticate(_head):
        if asked:
            asked.append(server)
            await trio.sleep(2)
        return "ada"

    server.authenticate = authenticate
    return server


@pytest.mark.parametrize("way", [0, 1], ids=["here", "over a link"])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_who_sends_a_request_is_still_being_asked_while_its_session_leaves(way, verb, autojump_clock):
    directory, asked = MemoryDirectory(), []
    async with open_buses(lambda: make_asking(asked), 3, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[way])
        asked.append(None)
        if verb == "POST":
            waiting = session.request("ping")
        else:
            waiting = session.get() if verb == "GET" else session.delete()
        await quiet(buses)
        assert len(asked) == 2
        await buses[0].drain(5)
        assert not buses[0].sessions
        if verb == "GET" and way == 0:  # its connection ends with the process
            assert (await waiting.ended()).complete
            assert b"retry: 0" in waiting.body
        elif verb == "GET":
            await waiting.begun()
            say(next(bus for bus in buses if bus.sessions), 1)
            await quiet(buses)
            assert said(waiting) == [1]
        else:
            assert (await waiting.ended()).status == (200 if verb == "POST" else 204)
            assert sum(len(bus.sessions) for bus in buses) == (verb == "POST")


async def test_the_body_of_a_request_is_still_coming_while_its_session_leaves(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize()
        app, _ = [bus.asgi() for bus in buses]

        async def be_slow(scope, receive, send):
            async def receive_late():
                await trio.sleep(2)
                return await receive()

            await app(scope, receive_late, send)

        async with open_probe(be_slow, shell="asgi") as probe:
            waiting = call(at(session, probe), "echo", text="late")
            await trio.sleep(1)
            buses[0].node.hand_over.begin()
            await quiet(buses)
            assert text(await waiting.reply()) == "late"
            assert [len(bus.sessions) for bus in buses] == [0, 1]


async def test_and_nobody_is_there_to_go_on_with_it(autojump_clock):
    asked = []
    async with open_buses(lambda: make_asking(asked), 1) as (buses, probes):
        session = await probes[0].initialize()
        asked.append(None)
        waiting = session.request("ping")
        await quiet(buses)
        await buses[0].drain(5)
        refused = await waiting.ended()
        assert (refused.status, "retry-after" in refused.headers) == (503, True)


async def test_and_it_ends_where_it_has_gone(autojump_clock):
    directory, asked = MemoryDirectory(), []
    async with open_buses(lambda: make_asking(asked), 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        asked.append(None)
        waiting = session.request("ping")
        await quiet(buses)
        await buses[0].drain(0)
        asked.clear()
        assert (await at(session, probes[1]).delete().ended()).status == 204
        assert (await waiting.ended()).status == 404


async def test_and_the_directory_is_being_told_that_it_leaves(autojump_clock, monkeypatch):
    directory, release, asked = MemoryDirectory(), MemoryDirectory.release, []

    async def take_long(*told):
        await trio.sleep(0.9)
        await release(directory, *told)

    monkeypatch.setattr(directory, "release", take_long)
    async with open_buses(lambda: make_asking(asked), 2, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        asked.append(None)
        waiting = call(session, "count")
        await trio.sleep(1.5)
        await buses[0].drain(5)
        assert text(await waiting.reply()) == "counted"
        assert [len(bus.sessions) for bus in buses] == [0, 1]


async def test_who_says_that_it_is_initialized_as_its_session_leaves_has_said_so(autojump_clock, monkeypatch):
    directory, release = MemoryDirectory(), MemoryDirectory.release

    async def take_long(*told):
        await trio.sleep(0.9)
        await release(directory, *told)

    monkeypatch.setattr(directory, "release", take_long)
    async with open_buses(make, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        session = await probes[0].initialize(initialized=False)
        nursery.start_soon(buses[0].drain, 5)
        await trio.sleep(0.3)
        assert (await session.notify("notifications/initialized").ended()).status == 202
        await quiet(buses[1:])
        assert only(buses[1]).stage.value == "ready"


async def test_each_idle_session_leaves_once_however_many_there_are(autojump_clock, monkeypatch):
    monkeypatch.setattr(takeover, "_AT_ONCE", 2)
    left, leave = [], SessionHandoffs._leave

    def note(self, session):
        left.append(session.id)
        return leave(self, session)

    monkeypatch.setattr(SessionHandoffs, "_leave", note)
    async with open_buses(make, 2, directory=MemoryDirectory()) as (buses, probes):
        for _ in range(5):
            await probes[0].initialize()
        here = {*buses[0].sessions}
        await buses[0].drain(5)
        assert len(here) == 5
        assert sorted(left) == sorted(here)


async def test_a_session_is_waited_for_until_it_has_gone(autojump_clock):
    """A request that is passed on before the directory lists its session as released finds it nowhere."""
    waited = []

    async def wait_gone(name):
        waited.append(name)

    front = SimpleNamespace(
        _node=SimpleNamespace(hand_over=SimpleNamespace(wait_gone=wait_gone), home="here")
    )
    await ClusterEndpoint.passed_on(
        front, RequestHead("GET", "/mcp", Headers([(b"mcp-session-id", b"gone")]))
    )
    assert waited == ["gone"]
