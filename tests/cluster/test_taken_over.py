"""What a process still has to say to the client of a session that another one has taken over: it is passed on, and said once."""

import pytest
import trio
from several import at, open_buses, quiet
from test_adoption import only
from test_forwarding import CHANGED, FORM, call, make, text
from test_held import SAID, said, say

from mcpbus import Context
from mcpbus.asking import InputTimeoutError, InputUnavailableError
from mcpbus.cluster.directory import SessionClaim
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.receipt import DELIVERED, LOST, MOVED, Fate
from mcpbus.protocol.routes import Reason
from mcpbus.testing import MemoryDirectory


async def take_over(directory, buses, probe, session):
    """Have the process of this probe take the session of the first one over."""
    if buses[0].node.home in directory._living:
        directory.lapse(buses[0].node.home)
    await directory.cut()
    await quiet(buses)
    assert (await at(session, probe).request("ping").ended()).status == 200


async def come_back(directory, buses):
    """Have the first process learn that it has lost its session."""
    directory.renew(buses[0].node.home)
    await trio.sleep(3)
    assert not buses[0].sessions


def unanswered(monkeypatch, method, home, *, done):
    """Have the directory not answer this process, though it may have done what it was told."""
    real = getattr(MemoryDirectory, method)

    async def fail(directory, ownership, *args):
        if ownership.home != home:
            return await real(directory, ownership, *args)
        if done:
            await real(directory, ownership, *args)
        raise OSError("no answer")

    monkeypatch.setattr(MemoryDirectory, method, fail)


def check_books(buses):
    """Each balances, nothing is pending any more, and what one has adopted another one has let go of or told it."""
    assert all(bus.ledger.balance() == 0 and not any(bus.ledger.pending.values()) for bus in buses)
    assert buses[1].ledger.adopted <= buses[0].ledger.moved + buses[0].ledger.delivered


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
async def test_what_may_have_been_kept_is_said_once(done, autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        with monkeypatch.context() as patch:
            unanswered(patch, "append_held", buses[0].node.home, done=done)
            receipts = say(buses[0], 1)
            await quiet(buses)
            await take_over(directory, buses, probes[1], session)
        stream = await at(session, probes[1]).get().begun()
        await come_back(directory, buses)
        assert said(stream) == [1]
        assert [receipt.fate for receipt in receipts] == [MOVED if done else DELIVERED]
        assert buses[1].ledger.adopted == 1
        check_books(buses)


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
async def test_what_was_being_taken_out_to_be_sent_is_said_once(done, autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        receipts = say(buses[0], 1)
        await quiet(buses)
        with monkeypatch.context() as patch:
            unanswered(patch, "pop_held", buses[0].node.home, done=done)
            old = await session.get().begun()
            await quiet(buses)
            await take_over(directory, buses, probes[1], session)
        stream = await at(session, probes[1]).get().begun()
        await come_back(directory, buses)
        assert (said(old), said(stream)) == ([], [1])
        assert [receipt.fate for receipt in receipts] == [DELIVERED if done else MOVED]
        check_books(buses)


async def test_what_a_client_has_not_taken_yet_is_said_on_its_new_stream(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        old = await session.get().begun()
        await quiet(buses)
        old.stall()
        receipts = say(buses[0], 1)
        await quiet(buses)
        receipts += say(buses[0], 2, 3)
        await quiet(buses)
        await take_over(directory, buses, probes[1], session)
        stream = await at(session, probes[1]).get().begun()
        await come_back(directory, buses)
        old.resume()
        await quiet(buses)
        # The first one was on its way already.
        assert (said(old), said(stream)) == ([1], [2, 3])
        assert [receipt.fate for receipt in receipts] == [DELIVERED] * 3
        check_books(buses)


async def test_nobody_says_what_yet_another_process_may_have_found(autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        with monkeypatch.context() as patch:
            unanswered(patch, "append_held", buses[0].node.home, done=False)
            receipts = say(buses[0], 1)
            await take_over(directory, buses, probes[1], session)
        directory.lapse(buses[1].node.home)
        await directory.cut()
        stream = await at(session, probes[2]).get().begun()
        directory.renew(buses[1].node.home)
        await come_back(directory, buses)
        assert [receipt.fate for receipt in receipts] == [LOST]
        assert said(stream) == []


async def test_changes_are_left_to_the_other_one_and_questions_are_refused(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        session = await probes[0].initialize(capabilities={"roots": {}})

        async def ask():
            with pytest.raises(InputUnavailableError):
                await only(buses[0]).list_roots()

        nursery.start_soon(ask)
        (change,) = buses[0].tools_changed()
        await quiet(buses)
        await take_over(directory, buses, probes[1], session)
        stream = await at(session, probes[1]).get().begun()
        await come_back(directory, buses)
        assert change.fate == Fate.discarded(Reason.SUPERSEDED)
        assert CHANGED in [message["method"] for message in stream.messages]
        assert not any("id" in message for message in stream.messages)
        check_books(buses)


async def test_a_question_that_was_seen_is_withdrawn_by_who_has_the_session(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize(capabilities={"roots": {}})
        old = await session.get().begun()

        async def ask():
            with pytest.raises(InputTimeoutError):
                await only(buses[0]).list_roots(timeout=5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            question = await old.message()
            directory.lapse(buses[0].node.home)
        await quiet(buses)
        await take_over(directory, buses, probes[1], session)
        stream = await at(session, probes[1]).get().begun()
        await come_back(directory, buses)
        asked = [each.get("params", {}).get("requestId") for each in (*old.messages, *stream.messages)]
        assert asked.count(question["id"]) == 1
        check_books(buses)


async def test_what_is_for_a_session_that_has_ended_there_ends_as_well(autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        with monkeypatch.context() as patch:
            unanswered(patch, "append_held", buses[0].node.home, done=False)
            receipts = say(buses[0], 1)
            await take_over(directory, buses, probes[1], session)
        await at(session, probes[1]).delete().ended()
        await come_back(directory, buses)
        assert [receipt.fate for receipt in receipts] == [Fate.discarded(Reason.SESSION_ENDED)]
        check_books(buses)


def make_slow():
    """A server whose calls go on for a while, and then speak to their session and ask its client."""
    server = make()

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.progress(1)
        await trio.sleep(100)
        ctx.session.notify(SAID, {"number": 1})
        try:
            await ctx.elicit("who?", FORM)
        except InputUnavailableError as error:
            return str(error)

    return server


@pytest.mark.parametrize("way", [0, 2], ids=["here", "over a link"])
async def test_a_call_goes_on_where_it_was_begun(way, autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make_slow, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize(capabilities={"elicitation": {}})
        with monkeypatch.context() as patch:
            patch.setattr(buses[0].node.records, "note", lambda _session: None)  # it does not find out
            await take_over(directory, buses, probes[1], session)
            await trio.sleep(2)  # they dial each other
            going_on = call(at(session, probes[way]), "slow", token="t")
            assert (await going_on.message())["params"]["progress"] == 1
        await come_back(directory, buses)
        stream = await at(session, probes[1]).get().begun()
        assert "another process has its session" in text(await going_on.message(timeout=200))
        await quiet(buses)
        assert said(stream) == [1]
        assert (buses[0].statistics().actors, len(buses[0].session_directory.shares)) == (0, 0)
        check_books(buses)


@pytest.mark.parametrize("wanted", [True, False], ids=["wanted", "unsubscribed"])
async def test_it_tells_of_a_resource_only_while_its_client_wants_to_hear_of_that(wanted, autojump_clock):
    receipts = []

    def make_updating():
        server = make()
        server.resource("data://x")(lambda: "")

        @server.tool
        async def update(ctx: Context) -> None:
            await trio.sleep(100)
            receipts.append(ctx.session.resource_updated("data://x"))

        return server

    directory = MemoryDirectory()
    async with open_buses(make_updating, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await session.request("resources/subscribe", {"uri": "data://x"}).ended()
        going_on = call(session, "update")
        await take_over(directory, buses, probes[1], session)
        await come_back(directory, buses)
        stream = await at(session, probes[1]).get().begun()
        await quiet(buses)
        before = len(stream.messages)
        if not wanted:
            await at(session, probes[1]).request("resources/unsubscribe", {"uri": "data://x"}).ended()
        await going_on.ended(timeout=200)
        await quiet(buses)
        assert receipts[0].fate == (DELIVERED if wanted else Fate.discarded(Reason.NOT_SUBSCRIBED))
        assert len(stream.messages) - before == wanted
        check_books(buses)


async def test_what_it_has_asked_already_is_answered_nowhere(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make_slow, directory=directory) as (buses, probes):
        session = await probes[0].initialize(capabilities={"elicitation": {}})
        asking = call(session, "ask")
        assert (await asking.message())["method"] == "elicitation/create"
        await take_over(directory, buses, probes[1], session)
        await come_back(directory, buses)
        await at(session, probes[1]).get().begun()
        await asking.ended()
        assert "another process has its session" in asking.messages[-1]["error"]["message"]
        check_books(buses)


async def test_a_session_that_comes_back_meanwhile_is_another_one(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make_slow, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        going_on = call(session, "slow")
        await take_over(directory, buses, probes[1], session)
        await come_back(directory, buses)
        directory.lapse(buses[1].node.home)
        await directory.cut()
        assert (await at(session, probes[0]).request("ping").ended()).status == 200
        await going_on.ended(timeout=200)
        await quiet(buses)
        assert only(buses[0]).id == session.id
        assert len(directory._kept) == len(buses[0].session_directory.shares) == 1


async def test_nothing_more_is_kept_of_it_here(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make_slow, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        old = only(buses[0])
        call(session, "slow")
        await take_over(directory, buses, probes[1], session)
        await come_back(directory, buses)
        await at(session, probes[1]).delete().ended()
        await quiet(buses)
        with pytest.raises(ServerOverloaded):
            await buses[0].node.records.keep(old)
        assert not directory._kept


async def test_nothing_is_kept_of_it_before_it_has_heard_that_it_was_taken_over(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        old, records = only(buses[0]), buses[0].node.records
        await take_over(directory, buses, probes[1], session)
        await at(session, probes[1]).delete().ended()
        await quiet(buses)
        records.check_for_takeovers(old, SessionClaim(old.id, buses[1].node.home, 2))
        with pytest.raises(ServerOverloaded):
            await records.keep(old)
        assert (directory._kept, records.ownerships) == ({}, [])


async def _release(records, session, ended):
    await records.release([session])
    ended.set()


@pytest.mark.parametrize("lost", [False, True], ids=["it answers again", "it was taken over"])
async def test_what_is_due_is_kept_before_it_is_let_go_of_unless_somebody_else_has_it(
    lost, autojump_clock, monkeypatch
):
    directory, ended = MemoryDirectory(), trio.Event()
    async with open_buses(make, directory=directory) as (buses, probes), trio.open_nursery() as nursery:
        await probes[0].initialize()
        here, records = only(buses[0]), buses[0].node.records
        before = directory._kept[here.id].record
        here.subscriptions.add("data://x")
        with monkeypatch.context() as patch:
            unanswered(patch, "update", buses[0].node.home, done=False)
            records.note(here)
            await trio.sleep(0.5)
            nursery.start_soon(_release, records, here, ended)
            await trio.sleep(5.2)  # each tries once a second, and neither at this moment
            assert not ended.is_set()
            if lost:
                records.check_for_takeovers(here, SessionClaim(here.id, buses[1].node.home, 2))
        with trio.fail_after(10):
            await ended.wait()
        assert (directory._kept[here.id].record == before) is lost
