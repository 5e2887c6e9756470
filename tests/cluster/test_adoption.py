"""Sessions of a process that has ended: whichever process is asked for one goes on with it."""

import attrs
import msgspec
import pytest
import trio
from several import at, kill, open_buses, quiet
from test_forwarding import CHANGED, UPDATED, call, make, text

from mcpbus import Limits, UnauthorizedError
from mcpbus.cluster import node
from mcpbus.cluster.directory import SessionClaim, StoredHeldMessage, StoredSession
from mcpbus.cluster.messages import encode
from mcpbus.cluster.session_records import decode_record
from mcpbus.testing import MemoryDirectory, open_bus, open_probe

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "n", "version": "1"},
    },
}


def only(bus):
    (session,) = bus.sessions.values()
    return session


async def test_a_session_goes_on_elsewhere_as_it_was(autojump_clock):
    directory = MemoryDirectory()
    capabilities = {"roots": {}, "experimental": {"large": {"number": 1 << 100}}}
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize("2025-06-18", capabilities=capabilities)
        await session.request("logging/setLevel", {"level": "error"}).ended()
        for uri in ("res://one", "res://two"):
            await session.request("resources/subscribe", {"uri": uri}).ended()
        await session.request("resources/unsubscribe", {"uri": "res://two"}).ended()
        await kill(buses[0], directory)
        session = at(session, probes[1])
        assert text(await call(session, "echo", text="on").reply()) == "on"
        taken = only(buses[1])
        assert (taken.id, taken.revision.name, taken.stage.value) == (session.id, "2025-06-18", "ready")
        assert (taken.client_info["name"], taken.client_capabilities) == ("mcpbus test client", capabilities)
        assert (taken.log_level.value, taken.subscriptions) == ("error", {"res://one"})


async def test_what_is_no_name_of_a_session_is_not_looked_for(autojump_clock, monkeypatch):
    directory, looked_for = MemoryDirectory(), []
    async with open_buses(make, directory=directory) as (buses, probes):
        task = buses[0].node.names.new()
        await kill(buses[0], directory)
        look = directory.get

        async def note(name):
            looked_for.append(name)
            return await look(name)

        monkeypatch.setattr(directory, "get", note)
        leads = {"mcp-method": "tasks/get", "mcp-name": task}
        asked = probes[1].send("DELETE", headers={**leads, "mcp-session-id": "../../x"})
        assert (await asked.ended()).status == 404
        asked = probes[1].send("DELETE", headers={"mcp-session-id": task})
        assert (await asked.ended()).status == 404
    assert looked_for == [task]


async def test_a_session_of_a_process_that_was_cancelled_goes_on(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 1, directory=directory) as (_, (probe,)):
        with trio.CancelScope() as scope:
            async with open_bus(make(), cluster=directory.cluster()) as bus, open_probe(bus.asgi()) as gone:
                session = await gone.initialize()
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert (await at(session, probe).request("ping").ended()).status == 200


async def test_its_client_is_told_what_may_have_changed_and_what_changes(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await session.request("resources/subscribe", {"uri": "res://one"}).ended()
        await kill(buses[0], directory)
        stream = await at(session, probes[1]).get().begun()
        told = {(await stream.message())["method"] for _ in range(3)}
        assert told == {CHANGED, "notifications/resources/list_changed", UPDATED}
        buses[2].resource_updated("res://one")
        assert (await stream.message())["method"] == UPDATED


async def test_of_all_that_are_asked_at_once_one_goes_on_with_it(autojump_clock):
    directory = MemoryDirectory()
    hooked = []

    def make_slow():
        server = make()

        @server.on_session
        async def hook(session):
            hooked.append(session.bus)
            await trio.sleep(1)

        return server

    async with open_buses(make_slow, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)
        asked = [at(session, probes[n % 2 + 1]).request("ping", id=n) for n in range(6)]
        assert [(await one.ended()).status for one in asked] == [200] * 6
        assert sorted(len(bus.sessions) for bus in buses[1:]) == [0, 1]
        assert len(hooked) == 2


async def test_a_session_that_went_on_goes_on_again(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 4, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        for number in (1, 2):
            await kill(buses[number - 1], directory)
            assert (await at(session, probes[number]).request("ping").ended()).status == 200
        assert (await at(session, probes[3]).request("ping").ended()).status == 200
        assert [len(bus.sessions) for bus in buses[2:]] == [1, 0]


async def test_a_session_that_goes_on_is_initialized_whether_its_client_could_say_so_or_not(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(initialized=False), probes[1])
        await kill(buses[0], directory)
        assert (await session.request("ping").ended()).status == 200
        assert only(buses[1]).stage.value == "ready"
        assert (await session.notify("notifications/initialized").ended()).status == 202


async def test_a_session_goes_on_for_whom_it_is(autojump_clock):
    directory = MemoryDirectory()

    def make_private():
        server = make()

        async def authenticate(head):
            return {"name": head.headers.get("authorization")}

        server.authenticate = authenticate
        return server

    async with open_buses(make_private, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(headers={"authorization": "ada"}), probes[1])
        await kill(buses[0], directory)
        for who, status in (("eve", 404), ("ada", 200), ("eve", 404)):
            session._headers["authorization"] = who
            assert (await session.request("ping").ended()).status == status
        assert only(buses[1]).principal == {"name": "ada"}


async def test_a_session_is_not_taken_over_for_whom_is_refused(autojump_clock):
    directory = MemoryDirectory()
    refuses = False

    def make_guarded():
        server = make()

        async def authenticate(head):
            if refuses:  # otherwise whoever knows a session's name may go on with it
                raise UnauthorizedError

        server.authenticate = authenticate
        return server

    async with open_buses(make_guarded, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        await kill(buses[0], directory)
        refuses = True
        answer = await session.request("ping").ended()
        assert (answer.status, len(buses[1].sessions)) == (401, 0)
        refuses = False
        assert (await session.request("ping").ended()).status == 200
        assert only(buses[1])


async def test_a_session_that_cannot_be_prepared_ends(autojump_clock, caplog):
    directory = MemoryDirectory()

    def make_picky():
        server = make()
        opened = []

        @server.on_session
        async def hook(_session):
            if made.index(server):
                raise ValueError("not here")
            opened.append(1)

        made.append(server)
        return server

    made = []
    async with open_buses(make_picky, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)
        for probe in probes[1:]:
            assert (await at(session, probe).request("ping").ended()).status == 404
        assert "could not be taken over" in caplog.text
        assert not directory._kept
        assert [bus.statistics().actors for bus in buses[1:]] == [0, 0]


@pytest.mark.parametrize(
    ("record", "held"),
    [
        ({"revision": "2099-01-01"}, {}),
        ({}, {"first": StoredHeldMessage(b"", 60)}),
        ({}, {"1": StoredHeldMessage(b"\xff", 60)}),
    ],
)
async def test_what_another_version_has_kept_of_a_session_ends_it(record, held, autojump_clock, caplog):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        await quiet(buses)
        kept = directory._kept[session.id]
        changed = encode(msgspec.structs.replace(decode_record(kept.record), **record))
        directory._kept[session.id] = attrs.evolve(kept, record=changed, held=held)
        await kill(buses[0], directory)
        for _ in range(2):
            assert (await session.request("ping").ended()).status == 404
        await quiet(buses)
        assert buses[1].statistics().actors == 0
        assert "could not be taken over" in caplog.text
        assert not directory._kept


@pytest.mark.parametrize("record", [{"subscriptions": None}, {"transport": "NEWER"}])
async def test_what_cannot_be_read_of_a_session_is_no_session(record, autojump_clock, caplog):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        await quiet(buses)
        kept = directory._kept[session.id]
        changed = encode(msgspec.structs.replace(decode_record(kept.record), **record))
        directory._kept[session.id] = attrs.evolve(kept, record=changed)
        await kill(buses[0], directory)
        assert (await session.request("ping").ended()).status == 404
        assert buses[1].statistics().actors == 0
        assert "cannot be read" in caplog.text


async def test_a_session_for_which_there_is_no_room_waits(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory, limits=Limits(max_sessions=1)) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        other = await probes[1].initialize()
        await quiet(buses)
        stream = await other.get().begun()
        await kill(buses[0], directory)
        assert (await session.request("ping").ended()).status in {429, 503}
        stream.disconnect()
        await other.delete().ended()
        await quiet(buses)
        assert (await session.request("ping").ended()).status == 200


@pytest.mark.parametrize("way", ["delete", "idle"])
async def test_a_session_that_has_ended_does_not_go_on(way, autojump_clock):
    directory = MemoryDirectory()
    limits = Limits(idle_timeout=60)
    async with open_buses(make, directory=directory, limits=limits) as (buses, probes):
        session = await probes[0].initialize()
        if way == "delete":
            await session.delete().ended()
        else:
            await trio.sleep(61)
        await kill(buses[0], directory)
        assert (await at(session, probes[1]).request("ping").ended()).status == 404


async def test_a_session_that_nobody_comes_back_to_is_forgotten(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory, limits=Limits(idle_timeout=60)) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        await kill(buses[0], directory)
        await trio.sleep(58)
        assert directory._kept
        await trio.sleep(3 + node.LOOK_SECONDS)
        assert not directory._kept
        assert (await session.request("ping").ended()).status == 404


async def test_a_session_is_where_its_process_is_while_that_lives(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        await directory.cut()
        assert (await session.request("ping").ended()).status == 200
        assert [len(bus.sessions) for bus in buses] == [1, 0]


def fail(*_):
    raise OSError("the disk is full")


async def hang(*_):
    await trio.sleep_forever()


@pytest.mark.parametrize("why", [fail, hang])
async def test_where_sessions_cannot_be_kept_none_begins_and_those_there_are_go_on(
    why, autojump_clock, caplog
):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        elsewhere = at(session, probes[1])
        directory.create = directory.update = directory.remove = why
        began = trio.current_time()
        refused = await probes[0].post(INITIALIZE).ended()
        assert (refused.status, refused.headers.get("retry-after"), trio.current_time() - began <= 1) == (
            503,
            "1",
            True,
        )
        assert "the disk is full" in caplog.text or "has not answered" in caplog.text
        assert (await elsewhere.request("ping").ended()).status == 200
        for method, params in (
            ("logging/setLevel", {"level": "error"}),
            ("resources/subscribe", {"uri": "res://one"}),
        ):
            assert (await elsewhere.request(method, params).ended()).status == 503
        assert (await session.delete().ended()).status == 204
        assert (await elsewhere.request("ping").ended()).status == 404
        del directory.create, directory.update, directory.remove
        await trio.sleep(3)
        assert not directory._kept
        await quiet(buses)


async def test_what_a_client_asked_for_is_kept_when_it_is_answered(autojump_clock, monkeypatch):
    directory, done = MemoryDirectory(), []

    def slowly(write):
        async def written(ownership, record):
            await trio.sleep(0.5)
            await write(ownership, record)
            done.append(trio.current_time())

        return written

    monkeypatch.setattr(directory, "create", slowly(directory.create))
    monkeypatch.setattr(directory, "update", slowly(directory.update))
    async with open_buses(make, directory=directory) as (_, probes):
        session = await probes[0].initialize(initialized=False)
        assert done == [0.5]
        for number, (method, params) in enumerate(
            (
                ("logging/setLevel", {"level": "error"}),
                ("resources/subscribe", {"uri": "res://one"}),
                ("resources/unsubscribe", {"uri": "res://one"}),
            )
        ):
            assert (await session.request(method, params).ended()).status == 200
            assert trio.current_time() == done[-1] == 1 + number / 2


async def claim(name, owner, other, directory):
    """Another process takes a session over: its owner seems to have ended, though it has not."""
    accept = directory._living.pop(owner.node.home)
    claimed = await directory.claim(name, owner.node.home, other.node.home)
    directory._living[owner.node.home] = accept
    return claimed


async def hand_over(name, owner, other, directory):
    """Another process takes a session over, and its owner knows."""
    await claim(name, owner, other, directory)
    owner.session_directory.records.note(owner.sessions[name])
    await quiet([owner])
    assert not owner.sessions


async def test_who_finds_its_session_at_another_process_lets_go_of_it(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await quiet(buses)
        claimed = await claim(session.id, buses[0], buses[1], directory)
        assert claimed.ownership == SessionClaim(session.id, buses[1].node.home, 2)
        refused = await session.request("logging/setLevel", {"level": "error"}).ended()
        assert (refused.status, "Another process" in refused.messages[0]["error"]["message"]) == (503, True)
        await quiet(buses)
        assert not buses[0].sessions
        assert directory._kept[session.id] == claimed


@pytest.mark.parametrize("asked", range(3))
async def test_a_session_that_began_at_a_process_that_lives_is_found_where_it_is_now(asked, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await quiet(buses)
        await hand_over(session.id, buses[0], buses[1], directory)
        session = at(session, probes[asked])
        assert text(await call(session, "echo", text="on").reply()) == "on"
        stream = await session.get().begun()
        assert (await stream.message())["method"] == CHANGED
        assert [len(bus.sessions) for bus in buses] == [0, 1, 0]
        assert (await session.delete().ended()).status == 204
        assert (await session.request("ping").ended()).status == 404


async def test_a_session_that_everybody_says_is_elsewhere_is_not_looked_for_without_end(
    autojump_clock, monkeypatch
):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await quiet(buses)
        await hand_over(session.id, buses[0], buses[1], directory)
        homes, looked = [bus.node.home for bus in buses], []

        async def look(name):
            looked.append(name)
            return StoredSession(SessionClaim(name, homes[(len(looked)) % 2], 2), b"")

        monkeypatch.setattr(directory, "get", look)
        assert (await at(session, probes[2]).request("ping").ended()).status == 503
        assert len(looked) < 10


async def test_what_nobody_has_any_more_though_it_is_the_processs_own_is_taken_up_again(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await quiet(buses)
        known = buses[0].session_directory
        known.records, records = None, known.records
        only(buses[0]).close()
        await quiet(buses)
        known.records = records
        for number in (1, 0):
            assert (await at(session, probes[number]).request("ping").ended()).status == 200
        assert [len(bus.sessions) for bus in buses] == [1, 0]
        assert directory._kept[session.id].ownership == SessionClaim(session.id, buses[0].node.home, 1)
