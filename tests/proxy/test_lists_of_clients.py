"""The lists of each client: those of its own connection, new ones without notice, and what is in no list at all."""

import json
import math
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from scripted import SAID, Scripted
from upstreams import ELICITATION, NEW, OLD, proxy_of, upstream, weather

from examples.failures import register
from mcpbus import Limits, ProtocolError, Server
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.features.elsewhere import KINDS
from mcpbus.gateway import gateway
from mcpbus.testing import open_bus, open_client
from mcpbus.upstream.client_lists import WAIT_SECONDS, ClientLists

AWKWARD = [sys.executable, str(Path(__file__).with_name("awkward_server.py"))]
BOTH = pytest.mark.parametrize("here", [OLD, NEW])


def awkward(*names, quiet=False):
    """What a client's file names: one such program for each name."""
    more = ["quiet"] if quiet else []
    return {name: {"command": AWKWARD[0], "args": [*AWKWARD[1:], name, *more]} for name in names}


async def names(client):
    return {tool["name"] for tool in await client.list_tools()}


async def called(client, tool, **arguments):
    return json.loads((await client.call_tool(tool, arguments))["content"][0]["text"])


async def decline(_method, _params):
    return {"action": "decline"}


ASKED = {"capabilities": ELICITATION, "on_input_request": decline}


# -- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", [False, True])
async def test_three_clients_of_a_gateway_each_see_their_own_processes(quiet):
    with trio.fail_after(60):
        async with open_bus(gateway(awkward("a", "b", quiet=quiet))) as bus, AsyncExitStack() as stack:

            async def connect(**given):
                return await stack.enter_async_context(bus.connect(**given))

            old = await connect(revision=OLD, **ASKED)
            other = await connect(revision=OLD)
            new = await connect(revision=NEW, principal="ada", **ASKED)
            shared = {"a_grow", "a_put", "a_get", "b_grow", "b_put", "b_get"}
            asked = shared | {"a_trigger", "b_trigger"}
            assert [await names(each) for each in (old, other, new)] == [asked, shared, asked]

            for number, client in enumerate((old, other, new)):
                assert (await called(client, "a_grow", name=f"own{number}"))["server"] == "a"
            await called(other, "b_put", value="of other")
            assert await names(old) == asked | {"a_own0"}
            assert await names(other) == shared | {"a_own1"}
            assert await names(new) == asked | {"a_own2"}
            assert (await called(old, "a_trigger"))["tool"] == "trigger"
            assert (await called(new, "a_own2"))["tool"] == "own2"
            assert "value" not in await called(old, "b_get")
            assert (await called(other, "b_get"))["value"] == "of other"
            with pytest.raises(ProtocolError, match="a does not know it"):
                await other.call_tool("a_own0")


@BOTH
async def test_a_new_tool_may_be_called_before_any_list_has_it(here):
    with trio.fail_after(60):
        async with open_client(gateway(awkward("a", quiet=True)), revision=here) as client:
            await called(client, "a_grow", name="more")
            assert (await called(client, "a_more"))["tool"] == "more"
            assert "a_more" in await names(client)
            [message] = await client.get_prompt("a_unlisted")
            assert message["content"]["text"] == "a"


async def test_the_client_whose_process_has_changed_is_told_and_no_other_one():
    with trio.fail_after(60):
        async with (
            open_bus(gateway(awkward("a"))) as bus,
            bus.connect(revision=OLD) as ada,
            bus.connect(revision=NEW, principal="bob") as bob,
            bus.connect(revision=NEW, principal="cid") as cid,
            ada.listen(tools=True) as changes_of_ada,
            bob.listen(tools=True) as changes_of_bob,
            cid.listen(tools=True) as changes_of_cid,
        ):
            for client, changes in ((ada, changes_of_ada), (bob, changes_of_bob)):
                await client.list_tools()
                await called(client, "a_grow", name="more")
                assert (await anext(changes))[0] == "notifications/tools/list_changed"
            for changes in (changes_of_ada, changes_of_bob, changes_of_cid):
                with trio.move_on_after(0.2):
                    assert await anext(changes) is None


# -- our own servers ------------------------------------------------------------------------------


@asynccontextmanager
async def process(**options):
    """A connection to a server of its own, as a program gives one."""
    server = Server("process")

    @server.tool
    async def grow() -> None:
        server.add_tool(lambda: "more", name="more")

    async with open_bus(server) as bus, bus.connect(revision=NEW, **options) as client:
        yield client


@BOTH
async def test_a_client_without_subscriptions_hears_its_own_process_of_2026_07_28(here, autojump_clock):
    proxy = proxy_of(SimpleNamespace(connect=process), program=True)
    async with (
        open_bus(proxy) as bus,
        bus.connect(revision=here, principal="ada") as ada,
        bus.connect(revision=here, principal="bob") as bob,
        ada.listen(tools=True) as changes_of_ada,
        bob.listen(tools=True) as changes_of_bob,
    ):
        await ada.call_tool("grow")
        with trio.fail_after(10):
            assert (await anext(changes_of_ada))[0] == "notifications/tools/list_changed"
        with trio.move_on_after(10):
            assert await anext(changes_of_bob) is None


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("mounted", [False, True])
async def test_the_tools_of_a_session_are_listed_and_called(program, mounted, autojump_clock):
    server = weather()

    @server.on_session
    async def add(session):
        for number in range(60):
            session.add_tool(lambda number=number: str(number), name=f"own{number:02}")

    async with upstream(server, NEW) as reached:
        proxy = proxy_of(reached, program=program, negotiates=True)
        made = Server("desk", page_size=7) if mounted else proxy
        prefix = "sky_" if mounted else ""
        if mounted:
            made.mount(proxy, prefix="sky")
        async with open_client(made, revision=OLD) as client:
            tools = [tool["name"] for tool in await client.list_tools()]
            assert len(tools) == len(set(tools)) == 67
            assert tools[-1] == f"{prefix}own59"
            assert (await client.call_tool(f"{prefix}own59"))["content"][0]["text"] == "59"


async def test_a_client_behind_a_gateway_sees_the_tools_that_are_added_while_it_registers(autojump_clock):
    async with upstream(register.server) as reached:
        made = Server("desk")
        made.mount(proxy_of(reached, negotiates=True), prefix="gate")
        async with open_client(made, revision=OLD) as client:
            listed = {tool["name"] for tool in await client.list_tools()}
            assert listed == {f"gate_{name}" for name in register.UPSTREAM_TOOLS}


@BOTH
async def test_what_changes_without_notice_is_listed_when_a_client_asks(here, autojump_clock):
    scripted = Scripted(
        NEW if here == NEW else OLD, capabilities={"tools": {}, "prompts": {}, "resources": {}}
    )
    async with open_client(scripted.proxy(), revision=here) as client:
        assert await names(client) == {"t"}
        scripted.answers |= {
            "tools_list": {"tools": [{"name": "u", "inputSchema": {"type": "object"}}]},
            "prompts_list": {"prompts": [{"name": "p"}]},
            "resources_list": {"resources": [{"uri": "d://n", "name": "n"}]},
            "resources_templates_list": {"resourceTemplates": [{"uriTemplate": "d://m/{x}", "name": "m"}]},
        }
        assert await names(client) == {"u"}
        assert [each["name"] for each in await client.list_prompts()] == ["p"]
        assert [each["uri"] for each in await client.list_resources()] == ["d://n"]
        assert [each["uriTemplate"] for each in await client.list_resource_templates()] == ["d://m/{x}"]


# -- what is in no list ---------------------------------------------------------------------------


def unlisting(**options):
    """A server with a tool, a prompt and completions that it does not list."""

    def complete(_wire, _request, params):
        return {"completion": {"values": [params["ref"]["name"]]}}

    listed = {"tools_list": {"tools": []}, "prompts_get": {"messages": []}, "completion_complete": complete}
    return Scripted(OLD, **listed, **options)


@BOTH
async def test_what_no_list_has_is_asked_for_there_with_its_own_name(here, autojump_clock):
    scripted = unlisting()
    desk = Server("desk")
    desk.mount(scripted.proxy(), prefix="s")
    async with open_client(desk, revision=here) as client:
        assert (await client.call_tool("s_any", {"a": 1}))["content"] == SAID["content"]
        await client.get_prompt("s_some", {"b": "2"})
        completed = await client.request(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "s_some"}, "argument": {"name": "b", "value": ""}},
        )
        for absent in ("any", "so_any"):
            with pytest.raises(ProtocolError, match="unknown tool"):
                await client.call_tool(absent)
    [call] = scripted.asked("tools/call")
    assert (call["name"], call["arguments"]) == ("any", {"a": 1})
    assert completed["completion"]["values"] == ["some"]
    assert scripted.asked("prompts/get")[0]["name"] == "some"


async def test_an_error_of_there_is_the_answer(autojump_clock):
    def refuse(wire, request, _params):
        wire.refuse(request, -32602, "there is no such tool, they say")

    async with open_client(unlisting(tools_call=refuse).proxy()) as client:
        with pytest.raises(ProtocolError, match="there is no such tool, they say"):
            await client.call_tool("gone")


async def test_what_is_hidden_is_not_asked_for(autojump_clock):
    scripted = Scripted(OLD)
    seen = []

    def visible(_principal, tool):
        seen.append(tool.name)
        return tool.name != "s_secret"

    async def wrap(invocation, call_next):
        seen.append(invocation.name)
        return await call_next(invocation)

    desk = Server("desk", visible=visible, middleware=[wrap])
    proxy = scripted.proxy()
    desk.mount(proxy, prefix="s")
    async with open_bus(desk) as bus, bus.connect(revision=OLD) as client:
        for hide in (partial(desk.disable, names=["s_t"]), partial(proxy.disable, names=["t"])):
            hide()
            with pytest.raises(ProtocolError, match="unknown tool"):
                await client.call_tool("s_t")
        with pytest.raises(ProtocolError, match="unknown tool"):
            await client.call_tool("s_secret")
        await client.call_tool("s_other")
    assert [params["name"] for params in scripted.asked("tools/call")] == ["other"]
    assert seen[-2:] == ["s_other", "s_other"]


async def test_a_tool_that_a_session_hides_is_not_asked_for(autojump_clock):
    scripted = Scripted(OLD)
    async with open_bus(scripted.proxy()) as bus, bus.connect(revision=OLD) as client:
        [session] = bus.sessions.values()
        session.disable(names=["t"])
        session.add_tool(lambda: "mine", name="u")
        scripted.answers["tools_list"] = {
            "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("t", "u", "v")]
        }
        assert await names(client) == {"u", "v"}
        assert (await client.call_tool("u"))["content"][0]["text"] == "mine"
        with pytest.raises(ProtocolError, match="unknown tool"):
            await client.call_tool("t")
    assert scripted.asked("tools/call") == []


async def test_what_no_list_has_needs_the_scopes_of_its_proxy(autojump_clock):
    desk = Server("desk", authenticate=lambda request: "ada")
    desk.mount(unlisting().proxy(scopes=["weather"]), prefix="s")
    for kind in (desk.features.find_tool, lambda name, _: desk.features.find_prompt(name)):
        assert kind("s_any", None) is None, "it is not open"
    async with open_bus(desk):
        assert desk.features.find_tool("s_any", None).scopes == ("weather",)
        assert desk.features.find_prompt("s_any").scopes == ("weather",)


async def test_what_the_desk_has_itself_is_nobody_elses(autojump_clock):
    scripted = Scripted(OLD)
    desk = Server("desk")
    desk.tool(name="s_u")(lambda: "of the desk")
    desk.mount(scripted.proxy(), prefix="s")
    async with open_client(desk, revision=OLD) as client:
        scripted.answers["tools_list"] = {"tools": [{"name": "u", "inputSchema": {"type": "object"}}]}
        await client.list_tools()
        assert (await client.call_tool("s_u"))["content"][0]["text"] == "of the desk"
    assert scripted.asked("tools/call") == []


# -- lists that are slow, heavy or refused --------------------------------------------------------


async def test_who_asks_for_a_list_that_does_not_come_has_what_is_known_and_is_told_later(autojump_clock):
    def answer_late(wire, request, _params):
        async def reply():
            await trio.sleep(20)
            wire.reply(request, {"tools": [{"name": "late", "inputSchema": {"type": "object"}}]})

        wire.soon(reply)

    scripted = Scripted(OLD)
    async with open_client(scripted.proxy(), revision=OLD) as client:
        scripted.answers["tools_list"] = answer_late
        began = trio.current_time()
        assert await names(client) == {"t"}
        assert trio.current_time() - began == pytest.approx(WAIT_SECONDS)
        assert await names(client) == {"t"}
        await client.list_resources()
        assert trio.current_time() - began == pytest.approx(WAIT_SECONDS), "a late server is waited for again"
        await trio.sleep(25)
        assert ("notifications/tools/list_changed", {}) in client.notifications
        assert await names(client) == {"late"}
        assert len(scripted.asked("tools/list")) == 2


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("here", [OLD, NEW])
async def test_lists_wait_for_a_server_that_has_never_been_there_at_the_start_alone(
    here, program, autojump_clock
):
    def nothing(_wire, _request, _params):
        """Leave it unanswered."""

    desk = Server("desk")
    hanging = Scripted(OLD, initialize=nothing)
    desk.mount(hanging.proxy(optional=True, program=program), prefix="hanging")
    desk.mount(Scripted(OLD).proxy(optional=True, program=program), prefix="there")
    began = trio.current_time()
    async with open_client(desk, revision=here) as client:
        assert await names(client) == {"there_t"}
        assert trio.current_time() - began == pytest.approx(WAIT_SECONDS)
        await client.list_prompts()
        await client.list_resources()
        assert trio.current_time() - began == pytest.approx(WAIT_SECONDS)


async def test_what_a_session_alone_has_is_told_if_its_server_is_late(autojump_clock):
    def offer(wire, request, _params):
        # The first connection belongs to no client, and shows nothing.
        name = f"of{scripted.wires.index(wire)}"
        wire.reply(
            request, {"tools": [{"name": name, "inputSchema": {"type": "object"}}] if name > "of0" else []}
        )

    scripted = Scripted(OLD, tools_list=offer)
    scripted.delay = 3
    desk = Server("desk")
    desk.mount(scripted.proxy(optional=True), prefix="late")
    async with open_client(desk, revision=OLD) as client, client.listen(tools=True) as changes:
        assert await names(client) == set()
        await anext(changes)
        assert await names(client) == {"late_of1"}


async def test_many_clients_that_ask_at_once_have_it_asked_once(autojump_clock):
    scripted = Scripted(NEW)
    async with open_bus(scripted.proxy()) as bus, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(bus.connect(revision=NEW)) for _ in range(20)]
        before = len(scripted.asked("tools/list"))
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.list_tools)
        assert len(scripted.asked("tools/list")) - before <= 2


async def test_a_list_that_takes_long_is_asked_for_seldom(autojump_clock):
    def answer_late(wire, request, _params):
        async def reply():
            await trio.sleep(2)
            wire.reply(request, {"tools": []})

        wire.soon(reply)

    scripted = Scripted(NEW)
    async with open_client(scripted.proxy(), revision=NEW) as client:
        scripted.answers["tools_list"] = answer_late
        before = len(scripted.asked("tools/list"))
        for _ in range(100):
            await client.list_tools()
            with pytest.raises(ProtocolError, match="no such method"):
                await client.get_prompt("p")
            await trio.sleep(0.1)
        assert len(scripted.asked("tools/list")) - before <= 3


@pytest.mark.parametrize("seconds", [2, 8])
async def test_a_slow_list_is_asked_for_again_once_its_server_announces_another_one(seconds, autojump_clock):
    tools = ["t"]

    def answer_late(wire, request, _params):
        async def reply():
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
            await trio.sleep(seconds)
            wire.reply(request, {"tools": listed})

        wire.soon(reply)

    scripted = Scripted(OLD)
    async with open_client(scripted.proxy(), revision=OLD) as client, client.listen(tools=True) as changes:
        scripted.answers["tools_list"] = answer_late
        await client.call_tool("t")
        await client.list_tools()
        await trio.sleep(seconds)
        tools.append("more")
        scripted.wires[-1].say("notifications/tools/list_changed")
        with trio.fail_after(20):
            while True:
                await anext(changes)
                if await names(client) == {"t", "more"}:
                    break


async def test_a_list_that_is_refused_to_one_client_leaves_what_is_known(autojump_clock, caplog):
    scripted = Scripted(OLD)
    async with open_client(scripted.proxy(), revision=OLD) as client:
        scripted.answers["tools_list"] = lambda wire, request, _: wire.refuse(request, -32603, "not now")
        assert await names(client) == {"t"}
    assert "tools of upstream cannot be listed for one client: not now" in caplog.text


async def test_a_list_makes_the_tools_that_the_shared_one_lacks_and_lets_other_tasks_run(monkeypatch):
    """What is made is ready before the difference is wanted; a list like the shared one makes nothing."""
    monkeypatch.setattr("mcpbus.client.yielding.SLICE_SECONDS", 0.0)
    made = []

    async def read(described):
        return {each: each.encode() for each in described}

    shared = {
        kind: SimpleNamespace(
            read=read,
            version=0,
            taken={"t0": b"t0", "t1": b"t1"},
            make=lambda text, _left_out: made.append(text.decode()) or text.decode(),
        )
        for kind in KINDS
    }
    budget = MemoryBudget(math.inf, LimitMonitor())
    lists = ClientLists(shared, partial(budget.account, "what an upstream server lists"))
    assert not await lists.take("tools", [["t0", "t1"]])
    assert made == []
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    new = [f"n{number}" for number in range(100)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        assert await lists.take("tools", [["t0", *new]])
        assert made == new
        nursery.cancel_scope.cancel()
    assert turns >= 50
    assert not await lists.take("tools", [["t0", *new]])
    assert made == new
    assert lists.difference.new["tools"] == {each: each for each in new}
    assert lists.difference.gone["tools"] == {"t1"}


def described(*names, size=0):
    return [{"name": name, "inputSchema": {"type": "object"}, "description": "x" * size} for name in names]


def listing(own, shared=("t",), *, size=0):
    """An upstream server that lists one thing to clients, and another one over the connection that is nobody's."""

    def answer(wire, _request, _params):
        first = wire is wire.server.wires[0]
        return {"tools": described(*shared, size=size) if first else described(*own, size=size)}

    return Scripted(OLD, tools_list=answer)


def held(bus):
    return sum(each.held for each in bus.budget.accounts() if each.what == "what an upstream server lists")


async def test_what_one_client_alone_is_shown_counts_in_memory_until_its_connection_ends(autojump_clock):
    async with open_bus(listing(["t", "own"], size=100_000).proxy()) as bus:
        async with bus.connect(revision=OLD) as client:
            assert await names(client) == {"t", "own"}
            assert 100_000 < held(bus) < 500_000
        await trio.sleep(1)
        assert held(bus) == 0


async def test_what_is_listed_no_more_counts_no_more(autojump_clock):
    own = ["own"]

    def answer(wire, _request, _params):
        return {"tools": described("t", *(own if wire is not wire.server.wires[0] else ()), size=100_000)}

    async with open_bus(Scripted(OLD, tools_list=answer).proxy()) as bus, bus.connect(revision=OLD) as client:
        assert await names(client) == {"t", "own"}
        assert held(bus) > 100_000
        own.clear()
        await client.call_tool("t")
        assert await names(client) == {"t"}
        assert held(bus) == 0


async def test_no_more_is_made_of_a_list_than_fits_in_memory():
    made = []

    async def read(described):
        return {each: each.encode() for each in described}

    def make(text, _left_out):
        made.append(text)
        return text

    shared = {kind: SimpleNamespace(read=read, version=0, taken={}, make=make) for kind in KINDS}
    budget = MemoryBudget(50_000, LimitMonitor())
    lists = ClientLists(shared, partial(budget.account, "what an upstream server lists"))
    assert not await lists.take("tools", [[f"n{number}" for number in range(1000)]])
    assert len(made) < 20
    assert (budget.held, budget.accounts()) == (0, [])


async def test_an_item_that_only_the_client_still_has_and_that_is_bad_is_left_out_and_logged_once(caplog):
    async def read(described):
        return {each: each.encode() for each in described}

    def make(text, left_out):
        left_out.note("%s is bad", text.decode())

    shared = {kind: SimpleNamespace(read=read, version=0, taken={}, make=make) for kind in KINDS}
    shared["tools"].taken = {"t": b"t", "u": b"u"}
    budget = MemoryBudget(math.inf, LimitMonitor())
    lists = ClientLists(shared, partial(budget.account, "what an upstream server lists"))
    assert not await lists.take("tools", [["t", "u"]])
    for version in range(1, 4):  # the shared list loses both, and changes again and again
        shared["tools"].taken, shared["tools"].version = {}, version
        assert lists.difference.new["tools"] == {}
    assert caplog.messages == ["t is bad (and 1 more items of this list)"]


async def test_a_list_like_the_shared_one_is_kept_once(autojump_clock):
    proxy = listing(["t", "u"], ["t", "u"], size=100_000).proxy()
    async with open_bus(proxy) as bus, bus.connect(revision=OLD) as client:
        assert await names(client) == {"t", "u"}
        (pipe,) = [pipe for pipe in _pipes(proxy) if pipe.lists is not None]
        shared = proxy.connection._mirror.lists["tools"].taken
        assert pipe.lists._read["tools"] is shared
        assert held(bus) == 0


async def test_items_like_the_shared_ones_are_kept_once(autojump_clock):
    proxy = listing(["t", "own"], ["t"], size=100_000).proxy()
    async with open_bus(proxy) as bus, bus.connect(revision=OLD) as client:
        assert await names(client) == {"t", "own"}
        (pipe,) = [pipe for pipe in _pipes(proxy) if pipe.lists is not None]
        assert pipe.lists._read["tools"]["t"] is proxy.connection._mirror.lists["tools"].taken["t"]


def _pipes(proxy):
    return [pipe for pipes in proxy.connection._pool._pipes.values() for pipe in pipes]


async def test_past_the_memory_budget_a_client_sees_the_shared_list_and_still_calls_its_own(autojump_clock):
    own = [f"own{number}" for number in range(10)]
    proxy = listing(["t", *own], size=20_000).proxy()
    async with (
        open_bus(proxy, limits=Limits(memory_bytes=300_000)) as bus,
        bus.connect(revision=OLD) as client,
    ):
        assert await names(client) == {"t"}
        assert held(bus) == 0
        assert (await client.call_tool("own3"))["content"] == SAID["content"]
        assert bus.statistics().limits_reached["memory_bytes"] >= 1


async def test_the_lists_of_whoever_holds_most_are_forgotten(autojump_clock):
    """The client that has the larger list goes back to the shared one; the other one keeps its own."""
    large = [f"large{number}" for number in range(10)]

    def answer(wire, _request, _params):
        number = wire.server.wires.index(wire)
        return {"tools": described("t", *([], ["small"], large)[number], size=20_000)}

    proxy = Scripted(OLD, tools_list=answer).proxy()
    async with (
        open_bus(proxy, limits=Limits(memory_bytes=500_000)) as bus,
        bus.connect(revision=OLD, principal="alice") as alice,
        bus.connect(revision=OLD, principal="bob") as bob,
    ):
        assert await names(alice) == {"t", "small"}
        assert await names(bob) == {"t"}
        assert await names(alice) == {"t", "small"}


@pytest.mark.parametrize(
    "bad", [{"inputSchema": 5}, {"inputSchema": {}, "execution": {"taskSupport": "required"}}]
)
async def test_however_many_items_of_a_list_are_bad_the_log_has_one_line(bad, autojump_clock, caplog):
    """One for the shared list, and one for the list of the client."""
    tools = [*described("t"), *({"name": f"bad{number}", **bad} for number in range(50))]
    scripted = Scripted(OLD, tools_list={"tools": tools})
    async with open_client(scripted.proxy(), revision=OLD) as client:
        assert await names(client) == {"t"}
    lines = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(lines) == 2
    assert all(line.endswith("(and 49 more items of this list)") for line in lines)


async def test_however_many_names_are_too_long_with_their_prefix_the_log_has_one_line(autojump_clock, caplog):
    """One for the shared list, and one for what the client alone is shown."""
    long = [f"{number:02}{'x' * 60}" for number in range(50)]
    server = Server("above")
    server.mount(
        listing(["t", *(f"o{name[1:]}" for name in long[:10])], ["t", *long]).proxy(), prefix="below"
    )
    async with open_client(server, revision=OLD) as client:
        assert await names(client) == {"below_t"}
    lines = [record.getMessage() for record in caplog.records if "is not offered" in record.getMessage()]
    assert [line[line.rindex("(") :] for line in lines] == [
        "(and 49 more items of this list)",
        "(and 9 more items of this list)",
    ]
