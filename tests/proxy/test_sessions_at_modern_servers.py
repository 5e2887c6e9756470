"""What sessions of older revisions have at servers of 2026-07-28 that speak those, too: a session there, as if they were connected to it."""

from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from upstreams import ELICITATION, NEW, OLD, proxy_of, upstream, weather

from mcpbus.client.errors import SessionLostError
from mcpbus.testing import open_bus

_AGAIN_SECONDS = 300


@asynccontextmanager
async def served(**options):
    async with (
        upstream(weather(), NEW) as reached,
        open_bus(proxy_of(reached, negotiates=True, **options)) as bus,
    ):
        yield reached, bus


async def answer(_method, _params):
    return {"action": "accept", "content": {"value": "Ada"}}


def asked():
    return {"capabilities": ELICITATION, "on_input_request": answer}


async def called(client, tool="count"):
    return (await client.call_tool(tool))["content"][0]["text"]


def revisions(reached):
    return [client.revision.name for client in reached.clients]


@pytest.mark.parametrize("program", [False, True])
async def test_each_client_has_a_session_of_its_own_there_whatever_its_revision(program, autojump_clock):
    async with served(program=program) as (reached, bus):
        async with (
            bus.connect(revision=OLD, **asked()) as ada,
            bus.connect(revision="2024-11-05") as bob,
            bus.connect(revision=NEW, **asked()) as cid,
        ):
            assert [await called(ada), await called(ada), await called(bob)] == ["1", "2", "1"]
            assert await called(ada, "ask") == "Ada"
            assert await called(cid, "ask") == "Ada"
            assert [await called(cid), await called(cid)] == ["1", "2"]
            assert revisions(reached) == [NEW, OLD, OLD, OLD]
            assert reached.declared == [{}, ELICITATION, {}, ELICITATION]
        await wait_all_tasks_blocked()
        assert reached.connected == 2, "those of sessions that have ended are still there"


async def test_where_it_can_have_none_it_goes_over_what_is_everybodys_and_that_is_tried_again_later(
    autojump_clock, caplog
):
    async with served() as (reached, bus), AsyncExitStack() as stack:
        reached.refused = OLD
        ada, bob = [await stack.enter_async_context(bus.connect(revision=OLD, **asked())) for _ in range(2)]
        for client in (ada, bob, ada):
            assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW]
        [line] = [each for each in caplog.messages if "without sessions" in each]
        assert line.endswith(f"for now: the server does not speak {OLD}")
        reached.refused = None
        assert await called(ada, "ask") == "Ada"
        assert revisions(reached) == [NEW]
        await trio.sleep(_AGAIN_SECONDS)
        assert await called(ada, "ask") == "Ada"
        assert revisions(reached) == [NEW, OLD]


async def test_one_connection_that_comes_late_leaves_other_clients_their_sessions(autojump_clock, caplog):
    async with served() as (reached, bus), AsyncExitStack() as stack:
        ada, bob = [await stack.enter_async_context(bus.connect(revision=OLD, **asked())) for _ in range(2)]
        assert await called(bob) == "1"
        reached.slow = 40
        began = trio.current_time()
        assert await called(ada, "ask") == "Ada"
        assert trio.current_time() - began == 30
        assert [each for each in caplog.messages if "without sessions" in each] == []
        reached.slow = 0
        cid = await stack.enter_async_context(bus.connect(revision=OLD, **asked()))
        assert await called(cid) == "1"
        assert await called(bob) == "2"
        assert [await called(ada) for _ in range(2)] == ["1", "2"]
        assert revisions(reached) == [NEW, OLD, OLD, OLD]


async def test_connections_that_come_late_at_the_same_time_count_once(autojump_clock, caplog):
    async with served() as (reached, bus), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(bus.connect(revision=OLD, **asked())) for _ in range(5)]
        assert await called(clients[0]) == "1"
        reached.slow = 40
        async with trio.open_nursery() as nursery:
            for client in clients[1:]:
                nursery.start_soon(called, client, "ask")
        reached.slow = 0
        assert [await called(client) for client in clients] == ["2", "1", "1", "1", "1"]
        assert [each for each in caplog.messages if "without sessions" in each] == []


async def test_a_server_whose_sessions_never_come_is_used_without_them(autojump_clock, caplog):
    async with served() as (reached, bus), AsyncExitStack() as stack:
        ada = await stack.enter_async_context(bus.connect(revision=OLD, **asked()))
        assert await called(ada) == "1"
        reached.slow = 1000
        took = []
        for _ in range(5):
            client = await stack.enter_async_context(bus.connect(revision=OLD, **asked()))
            began = trio.current_time()
            assert await called(client, "ask") == "Ada"
            took.append(trio.current_time() - began)
        assert took == [30, 30, 30, 0, 0]
        [line] = [each for each in caplog.messages if "without sessions" in each]
        assert "within 30 s" in line


@pytest.mark.parametrize("here", [OLD, NEW])
async def test_a_server_that_opens_no_sessions_is_used_without_them(here, autojump_clock, caplog):
    async with served() as (reached, bus), bus.connect(revision=here, **asked()) as client:
        connect = reached.connect

        @asynccontextmanager
        async def stateless(**options):
            async with connect(**options) as made:
                made.stateless = made.revision.name == OLD
                yield made

        bus.server._upstream = attrs.evolve(bus.server._upstream, connect=stateless)
        bus.server.connection._pool._upstream = bus.server._upstream
        for _ in range(3):
            assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW, OLD]
        await wait_all_tasks_blocked()
        assert reached.connected == 1
    assert [each.levelname for each in caplog.records if "it opens none" in each.message] in (["INFO"], [])


@pytest.mark.parametrize("here", [OLD, NEW])
async def test_a_server_that_loses_its_sessions_again_and_again_is_used_without_them(
    here, autojump_clock, caplog
):
    async with served() as (reached, bus), bus.connect(revision=here, **asked()) as client:
        assert await called(client, "ask") == "Ada"
        reached.clients[1].sessions_lost = 2
        assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW, OLD]
        reached.clients[1].sessions_lost = 3
        for _ in range(3):
            assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW, OLD]
        await trio.sleep(_AGAIN_SECONDS)
        assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW, OLD, OLD]
    assert "do several replicas answer there that do not share them?" in caplog.text


@pytest.mark.parametrize("here", [OLD, NEW])
async def test_a_call_that_each_session_refused_is_repeated_without_a_session(here, autojump_clock):
    async with served() as (reached, bus), bus.connect(revision=here, **asked()) as client:
        assert await called(client, "ask") == "Ada"

        async def refuse(*_, **__):
            await trio.lowlevel.checkpoint()
            raise SessionLostError("refused in 11 sessions")

        reached.clients[1].request_in_rounds = refuse
        assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW, OLD]


async def test_it_is_tried_again_as_soon_as_the_server_has_come_back(autojump_clock):
    async with served() as (reached, bus), bus.connect(revision=OLD, **asked()) as client:
        reached.refused = OLD
        assert await called(client, "ask") == "Ada"
        reached.refused = None
        reached.lose(reached.clients[0])
        await trio.sleep(5)
        assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW, NEW, OLD]


async def test_it_takes_no_place_that_others_have_or_wait_for(autojump_clock):
    async with served(connections=1) as (reached, bus), AsyncExitStack() as stack:
        ada, bob = [await stack.enter_async_context(bus.connect(revision=OLD, **asked())) for _ in range(2)]
        for client in (ada, bob, ada, bob):
            assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW, OLD]
        assert bus.statistics().limits_reached == {}


async def test_a_session_whose_connection_is_lost_has_another_one(autojump_clock):
    async with served() as (reached, bus), bus.connect(revision=OLD, **asked()) as client:
        assert [await called(client), await called(client)] == ["1", "2"]
        reached.lose(reached.clients[1])
        assert await called(client) == "1"
        assert revisions(reached) == [NEW, OLD, OLD]


async def test_lists_are_those_of_the_connection_that_a_client_has(autojump_clock):
    """Each client has one there, with what it has alone, whatever its revision."""
    async with served() as (reached, bus), bus.connect(revision=OLD) as ada, bus.connect(revision=NEW) as bob:
        reached.bus.server.on_session(add_session_tool)
        assert {tool["name"] for tool in await ada.list_tools()} >= {"forecast", "of_the_session"}
        assert revisions(reached) == [NEW, OLD]
        assert {tool["name"] for tool in await bob.list_tools()} >= {"forecast", "of_the_session"}
        assert revisions(reached) == [NEW, OLD, OLD]


async def add_session_tool(session):
    session.add_tool(lambda: "x", name="of_the_session")


async def test_a_revision_that_is_fixed_is_spoken_for_all(autojump_clock):
    async with upstream(weather(), NEW) as reached, open_bus(proxy_of(reached)) as bus:
        async with bus.connect(revision=OLD, **asked()) as client:
            assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [NEW]


async def test_what_turns_out_to_be_modern_is_nobodys_session(autojump_clock):
    """A server was replaced by a newer one between two connections, and cannot be told what to speak."""
    async with (
        upstream(weather(), OLD) as reached,
        open_bus(proxy_of(reached)) as bus,
        bus.connect(revision=OLD, **asked()) as ada,
        bus.connect(revision=OLD, **asked()) as bob,
    ):
        assert await called(ada, "ask") == "Ada"
        reached.revision = NEW
        for client in (bob, ada, bob):
            assert await called(client, "ask") == "Ada"
        assert revisions(reached) == [OLD, OLD, NEW, NEW]
