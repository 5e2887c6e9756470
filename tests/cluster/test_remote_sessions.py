"""Saying something to a session that another process has: it comes there in order, and what became of it comes back."""

import math
import random

import pytest
import trio
from several import at, kill, open_buses, quiet
from test_adoption import only
from test_forwarding import UPDATED, call, make, text
from test_held import SAID, said

from mcpbus import Limits, RemoteSession, UnauthorizedError
from mcpbus.cluster.directory import SessionClaim, StoredSession, released_home
from mcpbus.cluster.messages import FrameKind, SendFate, decode_tell, encode
from mcpbus.cluster.session_sender import OrderedSessionSender, decode_fate, encode_fate, say
from mcpbus.core.outbound import custom
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.core.receipt import DELIVERED, LOST, MOVED, STORED, Fate, Location
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason
from mcpbus.testing import MemoryDirectory, open_bus, open_probe, wait_until_idle

SESSION_ENDED = Fate.discarded(Reason.SESSION_ENDED)
UNREACHABLE = Fate.discarded(Reason.UNREACHABLE)
OVERFLOW = Fate.discarded(Reason.OVERFLOW)


async def remote(bus, session):
    """The session, as a process has it that does not serve it."""
    found = await bus.find_session(session.id, None)
    assert isinstance(found, RemoteSession)
    return found


def tell(found, *numbers):
    return [found.notify(SAID, {"number": number}) for number in numbers]


def fates(receipts):
    return [receipt.fate for receipt in receipts]


class Looked(MemoryDirectory):
    """Counts how often it is asked for a session."""

    looks = 0

    async def get(self, name):
        self.looks += 1
        return await super().get(name)


async def test_what_is_said_elsewhere_comes_to_the_client_in_order(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize()
        await session.request("resources/subscribe", {"uri": "res://one"}).ended()
        stream = await session.get().begun()
        await session.request("logging/setLevel", {"level": "error"}).ended()
        found = await remote(buses[1], session)
        receipts = [
            *tell(found, *range(20)),
            found.log("error", "bad"),
            found.log("info", "well"),
            found.resource_updated("res://one"),
            found.resource_updated("res://two"),
        ]
        assert {receipt.location for receipt in receipts} == {Location.REMOTE}
        assert buses[1].ledger.pending[Location.REMOTE] == len(receipts)
        await quiet(buses)
        assert said(stream) == [*range(20)]
        rest = [(message["method"], message["params"]) for message in stream.messages[20:]]
        assert rest == [
            ("notifications/message", {"level": "error", "data": "bad"}),
            (UPDATED, {"uri": "res://one"}),
        ]
        assert [*map(str, fates(receipts[20:]))] == [
            "delivered",
            f"discarded: {Reason.FILTERED.value}",
            "delivered",
            f"discarded: {Reason.NOT_SUBSCRIBED.value}",
        ]
        assert {*fates(receipts[:20])} == {DELIVERED}
        assert (buses[0].ledger.adopted, buses[0].ledger.balance()) == (len(receipts), 0)
        assert (buses[1].ledger.pending[Location.REMOTE], buses[1].ledger.balance()) == (0, 0)
        assert buses[1].statistics().held_bytes == 0


@pytest.mark.parametrize(("memory", "fate", "told"), [(math.inf, DELIVERED, [1, 2, 3, 4]), (0, LOST, [1, 4])])
async def test_what_is_on_its_way_as_a_link_ends_in_order_is_told_again(
    memory, fate, told, autojump_clock, caplog
):
    """It hears that nothing was done for it, and then that the link is lost. Without memory for it, it is lost, and once."""
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize()
        stream = await session.get().begun()
        found = await remote(buses[1], session)
        tell(found, 1)
        await quiet(buses)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(buses[0].node.link(buses[1].node.home).close_gracefully)
            buses[1].budget.limit = memory
            receipts = tell(found, 2, 3)
            buses[1].budget.limit = math.inf
        tell(found, 4)
        await trio.sleep(1)
        await quiet(buses)
        assert fates(receipts) == [fate] * 2
        assert said(stream) == told
        assert (buses[1].ledger.pending[Location.REMOTE], buses[1].ledger.balance()) == (0, 0)
    assert "was not told" not in caplog.text


async def test_a_session_that_is_here_is_itself_and_one_that_nobody_has_is_none(autojump_clock):
    directory = Looked()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        assert await buses[0].find_session(session.id, None) is only(buses[0])
        assert await buses[0].find_session("no such id", None) is None
        assert directory.looks == 0  # what is here, and what nobody can have named, is not looked for
        assert await buses[0].find_session(buses[1].node.names.new(), None) is None
        await session.delete().ended()
        await quiet(buses)
        assert await buses[1].find_session(session.id, None) is None


async def test_without_others_it_is_looked_for_here(autojump_clock):
    async with open_bus(make()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize()
        assert await bus.find_session(session.id, None) is only(bus)
        assert await bus.find_session(session.id, "mallory") is None
        assert await bus.find_session("no such id", None) is None


async def test_it_is_found_for_its_principal_alone(autojump_clock):
    async def authenticate(head):
        name = head.headers.get(b"authorization")
        if name is None:
            raise UnauthorizedError
        return {"name": name}

    def make_guarded():
        server = make()
        server.authenticate = authenticate
        return server

    async with open_buses(make_guarded) as (buses, probes):
        session = await probes[0].initialize(headers={"authorization": "alice"})
        for bus in buses:
            assert await bus.find_session(session.id, {"name": "mallory"}) is None
            assert await bus.find_session(session.id, None) is None
        assert isinstance(await buses[1].find_session(session.id, {"name": "alice"}), RemoteSession)


async def test_what_is_held_is_away_until_its_stream_opens(autojump_clock):
    async with open_buses(make, limits=Limits(held_items=2, held_timeout=60)) as (buses, probes):
        session = await probes[0].initialize()
        receipts = tell(await remote(buses[1], session), 1, 2, 3)
        await quiet(buses)
        assert [receipt.location for receipt in receipts] == [None, Location.REMOTE, Location.REMOTE]
        assert fates(receipts) == [OVERFLOW, None, None]
        stream = await session.get().begun()
        await quiet(buses)
        assert (said(stream), fates(receipts)) == ([2, 3], [OVERFLOW, DELIVERED, DELIVERED])


async def test_it_can_be_closed_from_elsewhere(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize()
        stream = await session.get().begun()
        found = await remote(buses[1], session)
        receipts = [*tell(found, 1), found.close()]
        await quiet(buses)
        late = [*tell(found, 2), found.close()]
        await trio.sleep(1)
        assert said(stream) == [1]
        assert fates([*receipts, *late]) == [DELIVERED, DELIVERED, SESSION_ENDED, SESSION_ENDED]
        assert not buses[0].sessions


@pytest.mark.parametrize(
    ("revision", "fate"),
    [("2025-06-18", Fate.discarded(Reason.NOT_IN_REVISION)), ("2025-11-25", DELIVERED)],
)
async def test_the_end_of_an_elicitation_by_url_is_told(revision, fate, autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize(revision)
        stream = await session.get().begun()
        receipt = (await remote(buses[1], session)).elicitation_complete("one")
        await quiet(buses)
        assert (receipt.fate, len(stream.messages)) == (fate, int(fate is DELIVERED))


async def test_a_lost_link_loses_what_is_away(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        found = await remote(buses[1], session)
        receipts = tell(found, 1)
        await quiet(buses)
        await directory.cut()
        await quiet(buses)
        assert fates(receipts) == [LOST]
        receipts = tell(found, 2, 3)
        await trio.sleep(1)
        stream = await session.get().begun()
        await quiet(buses)
        assert (said(stream), fates(receipts)) == ([1, 2, 3], [DELIVERED] * 2)


async def test_it_is_told_to_whoever_has_taken_the_session_over(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        found = await remote(buses[2], session)
        await kill(buses[0], directory)
        receipts = tell(found, 1, 2)
        await trio.sleep(1)
        assert {receipt.location for receipt in receipts} == {Location.REMOTE}
        stream = await at(session, probes[1]).get().begun()
        await trio.sleep(1)
        receipts += tell(found, 3)
        await quiet(buses)
        assert (said(stream), fates(receipts)) == ([1, 2, 3], [DELIVERED] * 3)


async def test_and_if_that_is_who_has_said_it_as_a_message_of_its_own(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        found = await remote(buses[1], session)
        await kill(buses[0], directory)
        receipts = tell(found, 1, 2)
        stream = await at(session, probes[1]).get().begun()
        await trio.sleep(1)
        assert (said(stream), fates(receipts)) == ([1, 2], [DELIVERED] * 2)
        assert buses[1].ledger.adopted == 0


@pytest.mark.parametrize("ends", ["in order", "without a word"])
async def test_what_is_said_to_a_session_that_has_come_here_comes_after_what_was_said_while_it_was_elsewhere(
    ends, autojump_clock
):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        found = await remote(buses[1], session)
        if ends == "in order":
            buses[0].node.hand_over.begin()
            await quiet(buses)
        else:
            await kill(buses[0], directory)
        receipts = tell(found, 1, 2)
        stream = await at(session, probes[1]).get().begun()
        receipts += tell(only(buses[1]), 3, 4)
        receipts += tell(found, 5)
        receipts.append(only(buses[1]).notify(SAID, {"number": 6}))
        await trio.sleep(5)
        receipts.append(only(buses[1]).notify(SAID, {"number": 7}))
        await quiet(buses)
        assert (said(stream), fates(receipts)) == ([*range(1, 8)], [DELIVERED] * 7)


async def test_what_comes_where_the_session_is_no_more_is_told_elsewhere_in_order(autojump_clock):
    directory = Looked()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        found = await remote(buses[2], session)
        buses[0].node.hand_over.begin()
        await quiet(buses)
        assert text(await call(at(session, probes[1]), "echo", text="on").reply()) == "on"
        assert session.id in buses[1].sessions
        receipts = tell(found, *range(5))
        stream = await at(session, probes[1]).get().begun()
        await trio.sleep(1)
        assert (said(stream), fates(receipts)) == ([*range(5)], [DELIVERED] * 5)
        assert (buses[0].ledger.adopted, buses[1].ledger.adopted) == (0, 5)
        looks = directory.looks
        (receipt,) = tell(found, 5)
        await quiet(buses)
        assert (receipt.fate, directory.looks) == (DELIVERED, looks)


async def test_one_that_is_taken_over_while_it_is_looked_for_is_itself(autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)

        async def look(name):
            monkeypatch.undo()
            kept = await directory.get(name)
            await at(session, probes[1]).request("ping").ended()
            return kept

        monkeypatch.setattr(directory, "get", look)
        assert await buses[1].find_session(session.id, None) is only(buses[1])


async def test_nobody_to_tell_it_to_is_known_in_time(autojump_clock):
    directory = Looked()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        found = await remote(buses[1], session)
        await kill(buses[0], directory)
        (first,) = tell(found, 1)
        await trio.sleep(3)
        (second,) = tell(found, 2)
        await trio.sleep(2.5)
        assert fates([first, second]) == [UNREACHABLE, None]
        await trio.sleep(3)
        assert fates([first, second]) == [UNREACHABLE] * 2
        assert 10 < directory.looks < 30


@pytest.mark.parametrize("limits", [{"outbox_items": 3}, {"outbox_bytes": 1000}, {"memory_bytes": 1000}])
async def test_what_waits_is_bounded(limits, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory, limits=Limits(**limits)) as (buses, probes):
        session = await probes[0].initialize()
        found = await remote(buses[1], session)
        await kill(buses[0], directory)
        receipts = tell(found, *range(10))
        assert OVERFLOW in fates(receipts)
        assert sum(fate is None for fate in fates(receipts)) < 5
        assert buses[1].statistics().held_bytes < 1000
        await trio.sleep(10)
        assert {*fates(receipts)} <= {OVERFLOW, UNREACHABLE}
        assert buses[1].statistics().held_bytes == 0


async def test_it_is_bounded_however_often_the_session_is_found(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory, limits=Limits(outbox_items=3)) as (buses, probes):
        session = await probes[0].initialize()
        first, second = await remote(buses[1], session), await remote(buses[1], session)
        await kill(buses[0], directory)
        assert fates([*tell(first, 1, 2), *tell(second, 3, 4)]) == [None, None, None, OVERFLOW]


async def test_what_has_been_told_makes_room(autojump_clock):
    async with open_buses(make, limits=Limits(outbox_items=3, outbox_bytes=1000)) as (buses, probes):
        session = await probes[0].initialize()
        await session.get().begun()
        found = await remote(buses[1], session)
        for _ in range(20):
            (receipt,) = tell(found, 1)
            await quiet(buses)
            assert receipt.fate is DELIVERED


async def test_and_so_does_what_has_waited_for_a_session_that_comes_here(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory, limits=Limits(outbox_items=3)) as (buses, probes):
        session = await probes[0].initialize()
        found = await remote(buses[1], session)
        await kill(buses[0], directory)
        receipts = tell(found, 1, 2, 3)
        stream = await at(session, probes[1]).get().begun()
        await trio.sleep(1)
        receipts += tell(found, 4, 5, 6)
        await trio.sleep(1)
        assert (said(stream), fates(receipts)) == ([*range(1, 7)], [DELIVERED] * 6)


async def test_what_was_kept_while_its_session_was_here_is_lost_where_that_comes_back(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize()
        stream = await session.get().begun()
        messages = []
        for number in (1, 2):
            notice = custom(buses[0].ledger, MessageKind.SESSION_CUSTOM, SAID, {"number": number})
            messages.append(OutboundMessage(notice.kind, Era.LEGACY, notice.data, notice.receipt))
        # Between then and now it was elsewhere, where the first one may have been said: it was in the directory.
        there = SessionClaim(session.id, "elsewhere")
        buses[0].node.remote_sessions.pass_on(there, messages[0], "1")
        buses[0].node.remote_sessions.pass_on(there, messages[1], None)
        await quiet(buses)
        assert [str(message.receipt.fate) for message in messages] == [str(LOST), str(DELIVERED)]
        assert said(stream) == [2]


async def test_a_directory_that_fails_in_its_own_way_ends_nothing_else(autojump_clock, monkeypatch, caplog):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session, own = await probes[0].initialize(), await probes[1].initialize()
        found = await remote(buses[1], session)
        await kill(buses[0], directory)
        receipts = tell(found, 1, 2)

        async def fail(_name):
            raise ValueError("no such thing")

        monkeypatch.setattr(directory, "get", fail)
        await trio.sleep(1)
        assert fates(receipts) == [UNREACHABLE] * 2
        assert "which process has a session" in caplog.text
        caplog.clear()
        monkeypatch.undo()
        assert (await own.request("ping").ended()).status == 200


async def test_one_that_is_being_handed_over_is_still_here(autojump_clock):
    async with open_buses(make) as (buses, probes):
        await probes[0].initialize()
        session = only(buses[0])
        buses[0].node.hand_over.begin()
        assert await buses[0].find_session(session.id, None) is session
        await quiet(buses)
        assert isinstance(await buses[0].find_session(session.id, None), RemoteSession)


async def test_what_waits_when_this_process_ends_is_told_that(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        async with open_bus(make(), cluster=directory.cluster()) as bus:
            found = await remote(bus, session)
            away = tell(found, 1)
            await wait_until_idle(bus)
            await kill(buses[0], directory)
            waiting = tell(found, 2)
        assert fates([*away, *waiting, *tell(found, 3)]) == [LOST, UNREACHABLE, UNREACHABLE]


async def test_a_fate_that_is_not_known_here_is_lost(autojump_clock):
    for told in (SendFate("vanished", None), SendFate("discarded", "for a reason of tomorrow")):
        assert decode_fate(encode(told)) is LOST
    for fate in (DELIVERED, OVERFLOW, MOVED, STORED):
        assert decode_fate(encode_fate(fate)) is fate


class Wire:
    """A link, and who leads to it: what is told over it is `told`, each by its channel and what it says."""

    closed, home = False, "here"

    def __init__(self, nursery):
        self.told = []
        self.start = nursery.start_soon
        self.owner = "there"

    def link(self, home):
        return None if home == self.home else self

    async def reach(self, home):
        return self

    async def look(self, session):
        return StoredSession(SessionClaim(session, self.owner), b"")

    def open(self, channel, payload, kind):
        assert kind == FrameKind.TELL
        self.told.append((channel, payload))
        return len(self.told)

    def leave(self, number):
        pass


@pytest.mark.parametrize(
    ("owner", "closed"), [("here", False), (released_home("there"), False), ("there", True)]
)
async def test_a_session_that_nobody_has_yet_is_waited_for(owner, closed, autojump_clock):
    async with open_bus(make()) as bus, trio.open_nursery() as nursery:
        wire = Wire(nursery)
        wire.owner, wire.closed = owner, closed
        notice = custom(bus.ledger, MessageKind.SESSION_CUSTOM, SAID, None)
        OrderedSessionSender(wire, bus, 5, "name", "here").tell(notice)
        await trio.sleep(4.9)
        assert (notice.receipt.location, wire.told) == (Location.REMOTE, [])
        await trio.sleep(0.2)
        assert (notice.receipt.fate, wire.told) == (UNREACHABLE, [])


async def sent_with(limits):
    """Send one message to a session elsewhere, and return the bytes that it counts for and its fate."""
    async with open_bus(make(), limits=limits) as bus, trio.open_nursery() as nursery:
        wire = Wire(nursery)
        notice = custom(bus.ledger, MessageKind.SESSION_CUSTOM, SAID, None)
        OrderedSessionSender(wire, bus, 5, "name", "there").tell(notice)
        fate = notice.receipt.fate
        for channel, _ in wire.told:
            channel.lose()
    return sum(len(payload) + OVERHEAD_BYTES for _, payload in wire.told), fate


async def test_a_message_of_exactly_the_limit_is_sent_and_no_longer_one(autojump_clock):
    size, fate = await sent_with(Limits())
    assert (size > OVERHEAD_BYTES, fate) == (True, None)
    assert await sent_with(Limits(outbox_bytes=size)) == (size, None)
    assert await sent_with(Limits(outbox_bytes=size - 1)) == (0, OVERFLOW)


async def test_what_is_said_while_something_comes_back_comes_after_it(autojump_clock):
    async with open_bus(make()) as bus, trio.open_nursery() as nursery:
        wire = Wire(nursery)
        courier = OrderedSessionSender(wire, bus, 5, "name", "there")
        notices = [
            custom(bus.ledger, MessageKind.SESSION_CUSTOM, SAID, {"number": number}) for number in range(3)
        ]
        courier.tell(notices[0])
        courier.tell(notices[1])
        (first, one), (second, two) = wire.told
        first.take(FrameKind.ELSEWHERE, one)
        courier.tell(notices[2])
        second.take(FrameKind.ELSEWHERE, two)
        await trio.sleep(1)
        told = [decode_tell(payload).data for _, payload in wire.told]
        assert told == [notices[number].data for number in (0, 1, 0, 1, 2)]
        for channel, _ in wire.told[2:]:
            channel.lose()
        assert {notice.receipt.fate for notice in notices} == {LOST}


async def test_what_is_taken_to_be_said_is_said_though_memory_gives_out_meanwhile(
    autojump_clock, monkeypatch
):
    """Its text was forgotten, as that of what is on its way is: it could not be said, and nobody heard what became of it."""
    async with (
        open_bus(make(), limits=Limits(memory_bytes=2_000)) as bus,
        open_probe(bus.asgi()) as probe,
        trio.open_nursery() as nursery,
    ):
        stream = await (await probe.initialize()).get().begun()
        courier = OrderedSessionSender(Wire(nursery), bus, 5, only(bus).id, "here")
        others, before = bus.budget.account("somebody else's"), bus.budget.held

        def say_in_want(session, told, receipt):
            others.hold_now(1_100)  # as a stream does that is counted from then on
            say(session, told, receipt)

        monkeypatch.setattr("mcpbus.cluster.session_sender.say", say_in_want)
        notices = [
            custom(bus.ledger, MessageKind.SESSION_CUSTOM, SAID, {"number": number}) for number in range(3)
        ]
        for notice in notices:
            courier.tell(notice)
        await wait_until_idle(bus)
        assert [notice.receipt.fate for notice in notices] == [DELIVERED] * 3
        assert (said(stream), bus.budget.held) == ([0, 1, 2], before + others.held)


@pytest.mark.parametrize("seed", range(6))
async def test_the_books_balance_whatever_happens_to_links_and_sessions(seed, autojump_clock):
    chance, directory = random.Random(seed), MemoryDirectory()
    limits = Limits(held_items=4, held_timeout=3, outbox_items=8)
    async with open_buses(make, 3, directory=directory, limits=limits) as (buses, probes):
        sessions = [await probe.initialize() for probe in probes]
        found = [await bus.find_session(session.id, None) for session in sessions for bus in buses[::-1]]
        spoken, receipts, closed, streams = [], [], [], []

        def balance():
            for bus in buses:
                assert bus.ledger.balance() == 0

        async def trouble():
            for _ in range(12):
                await trio.sleep(chance.random())
                await directory.cut()
                balance()

        async def listen():
            for session in sessions:
                await trio.sleep(5 * chance.random())
                streams.append(session.get())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            nursery.start_soon(listen)
            for number in range(300):
                one = chance.choice(found)
                spoken.append(one)
                receipts.append(one.notify(SAID, {"number": number}))
                balance()
                await trio.sleep(0.06 * chance.random())
                if number == 250:
                    closed += [found[0].close()]
        await trio.sleep(20)
        balance()
        assert all(receipt.fate is not None for receipt in receipts)
        delivered = sum(receipt.fate is DELIVERED for receipt in receipts)
        lost = sum(receipt.fate is LOST for receipt in receipts)
        heard = [number for stream in streams for number in said(stream)]
        assert len(heard) == len({*heard})
        assert delivered <= len(heard) <= delivered + lost
        assert delivered > 50
        # What was adopted anywhere was told from elsewhere, and its fate is known there, unless the link was lost meanwhile.
        away = [
            receipt for one, receipt in zip(spoken, receipts, strict=True) if isinstance(one, RemoteSession)
        ]
        arrived = sum(receipt.fate in {DELIVERED, Fate.discarded(Reason.EXPIRED)} for receipt in away)
        assert arrived <= sum(bus.ledger.adopted for bus in buses) - len(closed) <= len(away)
        assert sum(bus.ledger.pending[Location.REMOTE] for bus in buses) == 0
