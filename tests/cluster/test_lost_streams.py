"""Streams of processes that have ended: who comes back to one gets what it missed, and hears that its call is lost."""

import base64

import attrs
import pytest
import trio
from several import at, kill, open_buses, quiet
from test_forwarding import CHANGED, make, text

from mcpbus.cluster.directory import SessionClaim
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import MemoryDirectory

LOST = "whether it had an effect is not known"
IDS = [7, "7", "0b7d4a0e-53a7-4a9e-8a53-4f2f5a9d9f10", "ünï/+ \n"]


def ask(session, name, request_id=7):
    return session.request("tools/call", {"name": name}, id=request_id, progress_token=1)


async def come_back(session, event_id):
    return await session.get(event_id).ended()


@pytest.mark.parametrize("request_id", IDS)
@pytest.mark.parametrize("shared", [True, False], ids=["one store", "a store each"])
async def test_a_client_that_comes_back_is_told_that_its_call_is_lost(request_id, shared, autojump_clock):
    directory, store = MemoryDirectory(), MemoryEventStore()
    stores = [store, store if shared else MemoryEventStore()]
    async with open_buses(make, directory=directory, stores=stores) as (buses, probes):
        session = await probes[0].initialize("2025-11-25")
        stream = ask(session, "count", request_id)
        await trio.sleep(1.5)
        first, second = stream.event_ids[-2:]
        await kill(buses[0], directory)
        for event_id, missed in ((first, 1 if shared else 0), (second, 0)):
            again = await come_back(at(session, probes[1]), event_id)
            *said, reply = again.messages
            assert [message["params"]["progress"] for message in said] == [1] * missed
            assert (reply["id"], reply["error"]["code"]) == (request_id, -32603)
            assert LOST in reply["error"]["message"]


async def test_a_call_that_had_said_nothing_is_lost_like_any(autojump_clock):
    directory, store = MemoryDirectory(), MemoryEventStore()
    async with open_buses(make, directory=directory, stores=[store] * 2) as (buses, probes):
        session = await probes[0].initialize("2025-11-25")
        stream = ask(session, "hold")
        await trio.sleep(100)
        await kill(buses[0], directory)
        again = await come_back(at(session, probes[1]), stream.event_ids[0])
        assert [message["id"] for message in again.messages] == [7]
        assert len(store) == 0


async def test_what_had_ended_before_its_process_is_replayed(autojump_clock):
    directory, store = MemoryDirectory(), MemoryEventStore()
    async with open_buses(make, directory=directory, stores=[store] * 2) as (buses, probes):
        session = await probes[0].initialize("2025-11-25")
        stream = await ask(session, "count").ended()
        await kill(buses[0], directory)
        session = at(session, probes[1])
        assert text((await come_back(session, stream.event_ids[1])).messages[-1]) == "counted"
        assert (await come_back(session, stream.event_ids[-1])).status == 204


async def test_the_session_itself_is_gone_on_with_on_its_get_stream(autojump_clock):
    directory, store = MemoryDirectory(), MemoryEventStore()
    async with open_buses(make, directory=directory, stores=[store] * 2) as (buses, probes):
        session = await probes[0].initialize("2025-11-25")
        stream = await session.get().begun()
        buses[0].tools_changed()
        await stream.message()
        await kill(buses[0], directory)
        again = at(session, probes[1]).get(stream.event_ids[-1])
        assert (await again.message())["method"] == CHANGED  # it may have changed meanwhile
        await quiet(buses)
        assert not again.over


@pytest.mark.parametrize(
    "name",
    [
        "rabcdefgh",
        "rabcdefgh" + "x" * 16,
        "rabcdefgh" + "x" * 16 + "!",
        "rabcdefgh" + "x" * 16 + "AAAA",
        "rabcdefgh" + "x" * 16 + base64.urlsafe_b64encode(b'"\xff"').decode(),
        "g",
    ],
)
async def test_what_names_no_request_is_as_unknown_as_ever(name, autojump_clock):
    async with open_buses(make, stores=[MemoryEventStore()] * 2) as (_, probes):
        session = await probes[0].initialize("2025-11-25")
        assert (await come_back(session, f"{name}.1")).status == 400


async def test_the_event_of_another_session_is_unknown_wherever_that_is(autojump_clock):
    async with open_buses(make, stores=[MemoryEventStore()] * 2) as (_, probes):
        here, there = [await probe.initialize("2025-11-25") for probe in probes]
        stream = ask(there, "hold")
        await trio.sleep(100)
        again = await come_back(here, stream.event_ids[0])
        assert (again.status, LOST in again.body.decode()) == (400, False)


async def test_a_stream_of_this_process_that_is_not_known_is_not_lost(autojump_clock):
    store = MemoryEventStore()
    async with open_buses(make, stores=[store] * 2) as (_, probes):
        session = await probes[0].initialize("2025-11-25")
        stream = await ask(session, "count").ended()
        await store.forget(session.id)
        assert (await come_back(session, stream.event_ids[0])).status == 400


async def test_an_id_that_is_too_long_is_in_no_name(autojump_clock):
    directory, store = MemoryDirectory(), MemoryEventStore()
    async with open_buses(make, directory=directory, stores=[store] * 2) as (buses, probes):
        session = await probes[0].initialize("2025-11-25")
        stream = ask(session, "count", "x" * 80)
        await trio.sleep(1.5)
        assert len(stream.event_ids[0]) < 30
        await kill(buses[0], directory)
        assert (await come_back(at(session, probes[1]), stream.event_ids[-1])).status == 400


async def test_events_of_a_session_are_forgotten_when_it_ends_in_whatever_process(autojump_clock):
    directory, store = MemoryDirectory(), MemoryEventStore()
    async with open_buses(make, directory=directory, stores=[store] * 2) as (buses, probes):
        session = await probes[0].initialize("2025-11-25")
        await ask(session, "count").ended()
        await kill(buses[0], directory)
        session = at(session, probes[1])
        await session.request("ping").ended()
        assert len(store) > 0
        await session.delete().ended()
        await quiet(buses)
        assert len(store) == 0


async def test_who_has_lost_a_session_leaves_its_events_to_who_has_it(autojump_clock):
    directory, store = MemoryDirectory(), MemoryEventStore()
    async with open_buses(make, directory=directory, stores=[store] * 2) as (buses, probes):
        session = await probes[0].initialize("2025-11-25")
        stream = await ask(session, "count").ended()
        (lost,) = buses[0].sessions.values()
        kept = directory._kept[session.id]
        taken = SessionClaim(session.id, buses[1].node.home, 2)
        directory._kept[session.id] = attrs.evolve(kept, ownership=taken)
        await session.request("logging/setLevel", {"level": "error"}).ended()
        await quiet(buses)
        assert lost.id not in buses[0].sessions
        assert text((await come_back(session, stream.event_ids[1])).messages[-1]) == "counted"
