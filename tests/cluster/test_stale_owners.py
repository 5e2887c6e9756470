"""A process that still has a session which another one has taken over: what its client says to the other one reaches that."""

import pytest
import trio
from several import at, open_buses, quiet
from test_adoption import only
from test_forwarding import ANSWER, call, make, text

from mcpbus.testing import MemoryDirectory

WAYS = pytest.mark.parametrize("way", [0, 2], ids=["at the old one", "through another process"])


async def taken_over(directory, buses, probes, monkeypatch, **initialize):
    """A session that the second process has taken over, while the first one does not know it."""
    session = await probes[0].initialize(**initialize)
    monkeypatch.setattr(buses[0].node.records, "note", lambda _session: None)  # it does not find out
    directory.lapse(buses[0].node.home)
    await directory.cut()
    assert (await at(session, probes[1]).request("ping").ended()).status == 200
    await trio.sleep(2)  # it dials the others
    assert only(buses[0]).id == only(buses[1]).id
    return session


@WAYS
async def test_an_answer_reaches_who_has_asked(way, autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await taken_over(directory, buses, probes, monkeypatch, capabilities={"elicitation": {}})
        asking = call(at(session, probes[1]), "ask")
        question = await asking.message()
        answered = await at(session, probes[way]).answer(question["id"], ANSWER).ended()
        assert answered.status == 202
        assert "Ada" in text(await asking.message())


@WAYS
async def test_a_cancellation_reaches_the_call(way, autojump_clock, monkeypatch):
    directory, ran = MemoryDirectory(), []
    async with open_buses(lambda: make(ran), 3, directory=directory) as (buses, probes):
        session = await taken_over(directory, buses, probes, monkeypatch)
        call(at(session, probes[1]), "hold")
        await quiet(buses)
        await at(session, probes[way]).notify("notifications/cancelled", {"requestId": 2}).ended()
        await quiet(buses)
        assert ran == ["cancelled"]


@WAYS
async def test_an_answer_to_what_the_old_one_has_asked_is_its_own(way, autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize(capabilities={"elicitation": {}})
        asking = call(session, "ask")
        question = await asking.message()
        directory.lapse(buses[0].node.home)
        monkeypatch.setattr(directory, "get", None)  # nobody is asked
        await at(session, probes[way]).answer(question["id"], ANSWER).ended()
        assert "Ada" in text(await asking.message())


@WAYS
async def test_that_it_ends_reaches_who_has_it(way, autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await taken_over(directory, buses, probes, monkeypatch)
        assert (await at(session, probes[way]).delete().ended()).status == 204
        await quiet(buses)
        assert not buses[1].sessions
        assert (await at(session, probes[1]).request("ping").ended()).status == 404


@WAYS
async def test_where_nobody_can_be_asked_it_ends_all_the_same(way, autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        directory.lapse(buses[0].node.home)

        async def fail(*_):
            raise OSError("it is down")

        with monkeypatch.context() as patch:
            patch.setattr(directory, "get", fail)
            assert (await at(session, probes[way]).delete().ended()).status == 204
        await quiet(buses)
        assert not buses[0].sessions
        assert (await at(session, probes[1]).request("ping").ended()).status == 404


@WAYS
async def test_where_it_cannot_be_known_who_has_asked_the_client_is_told(way, autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await taken_over(directory, buses, probes, monkeypatch)

        async def fail(*_):
            raise OSError("it is down")

        monkeypatch.setattr(directory, "get", fail)
        answered = await at(session, probes[way]).answer(1, ANSWER).ended()
        assert (answered.status, answered.headers["retry-after"]) == (503, "1")


@WAYS
async def test_what_nobody_has_asked_is_taken_as_ever(way, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        directory.lapse(buses[0].node.home)
        assert (await at(session, probes[way]).answer(1, ANSWER).ended()).status == 202


async def test_it_ends_in_order_though_nobody_has_the_session_any_more(autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await taken_over(directory, buses, probes, monkeypatch)
        await at(session, probes[1]).delete().ended()
        hand_over = buses[0].node.hand_over

        async def look(_):
            hand_over.begin()  # it is told to end while it asks

        monkeypatch.setattr(directory, "get", look)
        await at(session, probes[0]).answer(1, ANSWER).ended()
        with trio.fail_after(60):
            await hand_over.wait_none()


async def test_it_does_not_take_over_what_it_believes_to_have(autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await taken_over(directory, buses, probes, monkeypatch)
        await directory.release([directory._kept[session.id].ownership])
        monkeypatch.setattr(buses[0].node.records, "check_for_takeovers", lambda *_: None)
        assert (await at(session, probes[0]).answer(1, ANSWER).ended()).status == 503
