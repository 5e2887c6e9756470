"""Who is asked next where a session is not where it was looked for, and what is not looked for at all."""

from types import SimpleNamespace

import pytest
import trio
from several import at, kill, open_buses, quiet
from test_adoption import only
from test_forwarding import make

from mcpbus.cluster.directory import released_home
from mcpbus.cluster.locator import Locator
from mcpbus.testing import MemoryDirectory

MADE_UP = "../../x"


@pytest.mark.parametrize(
    ("ends", "owner", "following"),
    [
        (False, "ended", "ended"),
        (False, released_home("it"), released_home("it")),
        (True, "another", "another"),
        (True, "ended", "third"),
        (True, released_home("it"), "third"),
    ],
)
def test_a_process_that_ends_has_any_other_one_take_over_what_nobody_has_but_each_once(
    ends, owner, following
):
    others = ["second", "third"]

    def anybody(*, but):
        return next(other for other in others if other not in but)

    node = SimpleNamespace(hand_over=SimpleNamespace(begun=ends), anybody=anybody)
    asked = ["first", "second"]
    assert Locator(node, None, None, None).next_home(owner, "ended", asked) == following
    assert asked == ["first", "second", "third"][: 3 if following == "third" else 2]


async def test_a_task_that_was_made_up_is_not_looked_for(autojump_clock, monkeypatch):
    """The request is for its session, as if it named nothing else."""
    directory, sought = MemoryDirectory(), []
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)

        async def seek(*asked):
            sought.append(asked)

        monkeypatch.setattr(buses[1].tasks, "seek", seek)
        params = {"notifications": {"taskIds": [MADE_UP]}}
        assert (await at(session, probes[1]).request("ping", params).ended()).status == 200
    assert sought == []


async def test_a_session_that_was_made_up_is_not_looked_for_whatever_else_is_named(
    autojump_clock, monkeypatch
):
    directory, looked_for = MemoryDirectory(), []
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)

        async def look(name):
            looked_for.append(name)

        monkeypatch.setattr(directory, "get", look)
        target = f"/sse?session_id={session.id}"
        headers = {"mcp-session-id": MADE_UP, "content-type": "application/json"}
        asked = probes[1].send(
            "POST", b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}', headers, target=target
        )
        assert (await asked.ended()).status == 404
    assert looked_for == []


async def test_a_client_is_not_told_that_it_has_ended_a_session_of_which_nothing_is_known(
    autojump_clock, monkeypatch
):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)

        async def look(_name):
            raise OSError("away")

        monkeypatch.setattr(directory, "get", look)
        assert (await at(session, probes[1]).delete().ended()).status == 503
        monkeypatch.undo()
        assert (await at(session, probes[1]).delete().ended()).status == 204


async def test_what_a_process_has_lost_of_another_ones_is_taken_up_again(autojump_clock):
    """The directory says that it has it, and it was looked for at who began it."""
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)
        session = at(session, probes[1])
        assert (await session.request("ping").ended()).status == 200
        known = buses[1].session_directory
        known.records, records = None, known.records
        only(buses[1]).close()
        await quiet(buses[1:])
        known.records = records
        assert not buses[1].sessions
        assert (await session.request("ping").ended()).status == 200


async def test_whoever_asks_for_a_session_that_is_being_taken_over_waits_though_the_process_is_told_to_end(
    autojump_clock,
):
    directory, go_on = MemoryDirectory(), trio.Event()
    go_on.set()

    def make_slow():
        server = make()

        @server.on_session
        async def wait(_session):
            await go_on.wait()

        return server

    async with open_buses(make_slow, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)
        go_on = trio.Event()
        session = at(session, probes[1])
        first = session.request("ping")
        await quiet(buses[1:])
        buses[1].node.hand_over.begin()
        second = session.request("ping")
        await quiet(buses[1:])
        go_on.set()
        assert [(await asked.ended()).status for asked in (first, second)] == [200, 200]
