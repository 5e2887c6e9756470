"""Changes at the other server: what clients of a proxy are told, and what it offers then."""

import math
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest
import trio
from scripted import Scripted
from trio.testing import wait_all_tasks_blocked
from upstreams import NEW, OLD, proxy_of, upstream, weather

from mcpbus import Server
from mcpbus.client.errors import DisconnectedError, MalformedAnswerError
from mcpbus.testing import open_bus, open_client
from mcpbus.upstream.monitor import MOST_URIS
from mcpbus.upstream.notification_relay import _Changes

UPSTREAMS = pytest.mark.parametrize("there", [OLD, NEW])
BOTH = pytest.mark.parametrize("here", [OLD, NEW])
PROGRAM = pytest.mark.parametrize("program", [False, True])


async def heard(changes, seconds=1):
    """All that is heard within a time."""
    found = []
    with trio.move_on_after(seconds):
        async for method, params in changes:
            found.append((method, params.get("uri")))
    return found


def names(tools):
    return {tool["name"] for tool in tools}


@UPSTREAMS
@BOTH
async def test_what_is_added_and_removed_there_is_here_and_clients_are_told(here, there, autojump_clock):
    server = weather()

    async def more() -> str:
        return "more"

    async with upstream(server, there) as reached, open_client(proxy_of(reached), revision=here) as client:
        await client.list_tools()
        async with client.listen(tools=True, prompts=True, resources=True) as changes:
            server.add_tool(more)
            # Once for the shared list, and once for that of the client's own connection.
            assert {*await heard(changes)} == {("notifications/tools/list_changed", None)}
            assert "more" in names(await client.list_tools())
            assert (await client.call_tool("more"))["content"][0]["text"] == "more"
            server.remove_tool("more")
            server.remove_prompt("pack")
            server.remove_resource("data://cities")
            assert {method for method, _ in await heard(changes)} == {
                f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
            }
            assert "more" not in names(await client.list_tools())
            assert (await client.list_prompts(), await client.list_resources()) == ([], [])


@UPSTREAMS
async def test_many_changes_at_once_are_looked_at_once_or_twice(there, autojump_clock):
    server = weather()
    listed = 0

    async with upstream(server, there) as reached, open_bus(proxy_of(reached)) as bus:
        before = [tool.name for tool in bus.server.features.tools.registered().values()]
        original = reached.clients[0].list_tools

        async def list_tools():
            nonlocal listed
            listed += 1
            return await original()

        reached.clients[0].list_tools = list_tools
        for number in range(50):
            server.add_tool(lambda: "x", name=f"tool-{number}")
        await trio.sleep(1)
        now = [tool.name for tool in bus.server.features.tools.registered().values()]
    assert listed <= 2
    assert now == [*before, *(f"tool-{number}" for number in range(50))]


async def test_what_is_described_otherwise_is_shown_so_and_what_is_not_stays(autojump_clock):
    server = weather()
    async with upstream(server) as reached, open_bus(proxy_of(reached)) as bus, bus.connect() as client:
        kept = bus.server.features.tools.get("ask")
        server.remove_tool("who")

        @server.tool
        async def who(name: str) -> str:
            """Another one."""
            return name

        await trio.sleep(1)
        assert bus.server.features.tools.get("ask") is kept
        [described] = [tool for tool in await client.list_tools() if tool["name"] == "who"]
        assert described["description"] == "Another one."
        assert (await client.call_tool("who", {"name": "Ada"}))["content"][0]["text"] == "Ada"


@UPSTREAMS
@BOTH
@PROGRAM
async def test_clients_hear_of_the_resources_that_they_subscribed_to(*, here, there, program, autojump_clock):
    async with (
        upstream(weather(), there) as reached,
        open_client(proxy_of(reached, program=program), revision=here) as client,
    ):
        async with client.listen(uris=["data://cities"]) as changes:
            await trio.sleep(1)
            reached.bus.resource_updated("data://cities")
            reached.bus.resource_updated("data://Oslo/now")
            assert await heard(changes) == [("notifications/resources/updated", "data://cities")]
            async with client.listen(uris=["data://Oslo/now"]) as more:
                await trio.sleep(1)
                reached.bus.resource_updated("data://Oslo/now")
                assert await heard(more) == [("notifications/resources/updated", "data://Oslo/now")]
        await trio.sleep(1)
        assert reached.bus.topics.uris == []


async def test_the_other_server_is_told_of_no_resource_that_is_not_its_own(autojump_clock):
    async with (
        upstream(weather()) as reached,
        open_client(proxy_of(reached)) as client,
        client.listen(uris=["file:///etc/passwd", "data://"]),
    ):
        await trio.sleep(1)
        assert reached.bus.topics.uris == ["data://"]


async def test_to_more_resources_than_a_bound_nobody_is_subscribed(autojump_clock, caplog):
    server = Server("many")
    server.resource("data://{number}")(lambda number: number)
    async with (
        upstream(server) as reached,
        open_client(proxy_of(reached)) as client,
        client.listen(uris=[f"data://{number}" for number in range(MOST_URIS)]),
        client.listen(uris=["data://more"]),
    ):
        await trio.sleep(1)
        assert len(reached.bus.topics.uris) == MOST_URIS
    assert "'data://more' is not subscribed to" in caplog.text


@UPSTREAMS
async def test_a_server_that_was_lost_is_come_back_to_and_looked_at_anew(there, autojump_clock, caplog):
    server = weather()
    async with (
        upstream(server, there) as reached,
        open_client(proxy_of(reached)) as client,
        client.listen(tools=True, uris=["data://cities"]) as changes,
    ):
        reached.down = "it is being mended"
        for each in [*reached.clients]:
            reached.lose(each)
        await wait_all_tasks_blocked()
        server.add_tool(lambda: "x", name="new")
        await trio.sleep(10)
        assert "new" not in names(await client.list_tools())
        reached.down = None
        await trio.sleep(60)
        assert "new" in names(await client.list_tools())
        assert ("notifications/tools/list_changed", None) in await heard(changes)
        reached.bus.resource_updated("data://cities")
        assert await heard(changes) == [("notifications/resources/updated", "data://cities")]
    assert "upstream cannot be reached; it is tried again in 2 s: it is being mended" in caplog.text


async def test_a_server_that_says_that_it_tells_of_no_changes_is_not_asked_for_any(autojump_clock, caplog):
    async with upstream(weather()) as reached:
        reached.declares = {"tools": {"listChanged": False}, "resources": {"subscribe": False}}
        async with open_client(proxy_of(reached)) as client:
            async with client.listen(uris=["data://cities"]):
                await wait_all_tasks_blocked()
            assert len(await client.list_tools()) > 0
            assert reached.clients[0]._listens == {}
    assert caplog.text == ""


@UPSTREAMS
async def test_an_optional_server_that_is_not_there_yet_is_waited_for(there, autojump_clock):
    async with upstream(weather(), there) as reached:
        reached.down = "it is being made"
        async with open_client(proxy_of(reached, optional=True)) as client:
            described = await client.describe()
            assert set(described.capabilities) >= {"tools", "prompts", "resources", "completions"}
            assert await client.list_tools() == []
            async with client.listen(tools=True) as changes:
                reached.down = None
                assert ("notifications/tools/list_changed", None) in await heard(changes, 60)
            assert len(await client.list_tools()) == 7


async def test_a_list_that_cannot_be_had_is_left_as_it_is(autojump_clock, caplog):
    server = weather()
    async with upstream(server) as reached, open_client(proxy_of(reached)) as client:
        before = await client.list_tools()

        async def list_tools():
            raise MalformedAnswerError("it is no list")

        reached.clients[0].list_tools = list_tools
        server.remove_tool("ask")
        await trio.sleep(1)
        assert await client.list_tools() == before
    assert "tools of upstream cannot be listed: it is no list" in caplog.text


async def test_what_is_said_outside_of_calls_is_said_in_the_session_whose_own_the_connection_is(
    autojump_clock,
):
    async with (
        upstream(weather(), OLD) as reached,
        open_bus(proxy_of(reached)) as bus,
        bus.connect(revision=OLD) as ada,
        bus.connect(revision=OLD) as bob,
    ):
        await ada.call_tool("count")
        await bob.call_tool("who")
        [theirs] = [session for session in reached.bus.sessions.values() if session.state == {"n": 1}]
        theirs.log("warning", "to Ada alone", "acme")
        theirs.notify("notifications/acme", {"a": 1})
        await wait_all_tasks_blocked()
        assert list(ada.notifications) == [
            ("notifications/message", {"level": "warning", "logger": "acme", "data": "to Ada alone"}),
            ("notifications/acme", {"a": 1}),
        ]
        assert list(bob.notifications) == []


async def test_roots_that_have_changed_are_told_to_the_connections_of_the_session(autojump_clock):
    server, told = weather(), []

    @server.on_notification("notifications/roots/list_changed")
    async def changed(said):
        told.append(said.session)

    async with upstream(server, OLD) as reached:
        given = {"capabilities": {"roots": {"listChanged": True}}, "revision": OLD}
        async with (
            open_bus(proxy_of(reached)) as bus,
            bus.connect(**given) as ada,
            bus.connect(**given) as bob,
        ):
            await ada.call_tool("count")
            await bob.call_tool("who")
            await ada.notify("notifications/roots/list_changed")
            await wait_all_tasks_blocked()
            assert [session.state for session in told] == [{"n": 1}]


async def test_a_server_whose_lists_change_all_the_time_is_looked_at_now_and_then(autojump_clock):
    scripted = Scripted(OLD)
    async with (
        open_bus(scripted.proxy()) as bus,
        bus.connect(revision=OLD) as ada,
        bus.connect(revision=OLD) as bob,
    ):
        for client in (ada, bob):
            await client.call_tool("t")
        looked = len(scripted.asked("tools/list"))
        for _ in range(1000):
            for wire in scripted.wires:
                wire.say("notifications/tools/list_changed")
            await trio.sleep(0.01)
        assert len(scripted.asked("tools/list")) - looked <= 10
        scripted.answers["tools_list"] = {"tools": []}
        scripted.wires[-1].say("notifications/tools/list_changed")
        await trio.sleep(2)
        assert await ada.list_tools() == []


@UPSTREAMS
@pytest.mark.parametrize("up", [0.5, 3])
async def test_a_server_that_comes_and_goes_is_tried_less_and_less_often(there, up, autojump_clock, caplog):
    scripted = Scripted(there)

    @asynccontextmanager
    async def connect(**given):
        async with Scripted.connect(scripted, **given) as client:
            wire = scripted.wires[-1]
            wire.soon(lose_later, wire)
            yield client

    async def lose_later(wire):
        await trio.sleep(up)
        wire.client.disconnected("it was cut")

    scripted.connect = connect
    async with open_bus(scripted.proxy()):
        await trio.sleep(3600)
    assert 60 < len(scripted.wires) < 80
    assert len(caplog.records) < 100


async def test_a_server_that_is_away_though_its_connection_is_not_is_told_of_once_each_time(
    autojump_clock, caplog
):
    """Over HTTP each request has a connection of its own."""

    def be_away(wire, request, _params):
        wire.client._pending[request].settle(DisconnectedError("cannot connect"))

    scripted = Scripted(NEW)
    async with open_client(scripted.proxy()) as client:
        await wait_all_tasks_blocked()
        answers, scripted.answers = scripted.answers, dict.fromkeys(scripted.answers, be_away)
        scripted.wires[0].reply([*scripted.listens][-1], {})
        await trio.sleep(3600)
        assert len(caplog.records) < 80
        assert {record.getMessage().partition(";")[0] for record in caplog.records} == {
            "upstream cannot be reached"
        }
        scripted.answers = answers
        await trio.sleep(60)
        assert len(scripted.listens) == 2
        assert await client.list_tools()


@UPSTREAMS
async def test_what_a_server_has_no_more_that_comes_back_is_not_offered(there, autojump_clock):
    scripted = Scripted(there)
    async with open_client(scripted.proxy()) as client:
        assert await client.list_tools()
        scripted.capabilities = {"prompts": {}}
        for wire in [*scripted.wires]:
            wire.client.disconnected("it is another one")
        await trio.sleep(5)
        assert await client.list_tools() == await client.list_resources() == []
        assert await client.list_resource_templates() == []


@pytest.mark.parametrize("rests", [0, 9])
async def test_changes_that_were_passed_on_leave_nothing_to_do(rests, autojump_clock):
    looks = []

    async def look(pipe, lists):
        looks.append(lists)

    changes = _Changes(look, rests=rests)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(changes.run)
        changes.note(Mock(closing=False), ["tools"])
        await trio.sleep(5)
        assert looks == [["tools"]]
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf
        nursery.cancel_scope.cancel()
