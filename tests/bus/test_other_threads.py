"""What belongs to trio's thread says so in any other one, before anything is counted or changed."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import trio
from staging import staged

from mcpbus import Context, Server
from mcpbus.testing import open_bus, open_probe, wait_until_idle

CALLS = {
    "bus.tools_changed": lambda stage, _: stage.bus.tools_changed(),
    "bus.prompts_changed": lambda stage, _: stage.bus.prompts_changed(),
    "bus.resources_changed": lambda stage, _: stage.bus.resources_changed(),
    "bus.resource_updated": lambda stage, _: stage.bus.resource_updated("res://a/b"),
    "session.log": lambda _, session: session.log("error", "x"),
    "session.notify": lambda _, session: session.notify("notifications/x"),
    "session.resource_updated": lambda _, session: session.resource_updated("res://a/b"),
    "session.elicitation_complete": lambda _, session: session.elicitation_complete("x"),
    "session.add_tool": lambda _, session: session.add_tool(another),
    "session.remove_tool": lambda _, session: session.remove_tool("own"),
    "session.disable": lambda _, session: session.disable(names=["quick"]),
    "session.enable": lambda _, session: session.enable(names=["hold"]),
    "session.close": lambda _, session: session.close(),
    "server.add_tool": lambda stage, _: stage.server.add_tool(another),
    "server.remove_tool": lambda stage, _: stage.server.remove_tool("quick"),
    "server.disable": lambda stage, _: stage.server.disable(names=["quick"]),
    "server.add_resource": lambda stage, _: stage.server.add_resource("res://c", another),
    "server.remove_resource": lambda stage, _: stage.server.remove_resource("res://a/b"),
    "server.add_prompt": lambda stage, _: stage.server.add_prompt(another),
    "server.remove_prompt": lambda stage, _: stage.server.remove_prompt("prompt"),
    "server.completion": lambda stage, _: stage.server.completion("prompt", "topic")(complete),
}


async def another() -> str:
    """Return what another one returns."""
    return "another"


async def own() -> str:
    """Return what the session's own tool returns."""
    return "own"


async def complete(value: str) -> list[str]:
    """Propose nothing."""
    return []


def elsewhere(call, *args):
    """Call something in another thread, while this one stands still, and with it the clock."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call, *args).result()


def state(stage, session):
    """All that such a call might count or change."""
    features = session.features
    registries = (features.tools, features.resources, features.prompts, stage.server.features.tools)
    offered = [entry.key for registry in registries for entry in registry.entries()]
    return stage.bus.statistics(), session.stage, offered, list(features.completers)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_from_another_thread_is_refused_and_changes_nothing(name, autojump_clock):
    async with staged() as stage:

        @stage.server.prompt
        def about(topic: str) -> str:
            return topic

        client = await stage.probe.initialize()
        session = stage.bus.sessions[client.id]
        session.add_tool(own)
        session.disable(names=["hold"])
        await client.request("resources/subscribe", {"uri": "res://a/b"}).reply()
        await stage.quiet()
        before = state(stage, session)
        call = CALLS[name]
        with pytest.raises(
            RuntimeError, match=rf"{name}\(\) .* trio\.from_thread\.run_sync\({name}"
        ) as caught:
            elsewhere(call, stage, session)
        assert (f"write ctx.{name}(...) with ctx: SyncContext" in str(caught.value)) == name.startswith(
            "bus."
        )
        await stage.quiet()
        assert state(stage, session) == before
        if name != "server.completion":
            call(stage, session)
            assert state(stage, session) != before


async def test_a_server_that_is_not_open_may_be_built_in_any_thread(autojump_clock):
    async with staged() as stage:
        pass
    elsewhere(stage.server.add_tool, another)


SAID = {
    "info": lambda ctx: ctx.info("x"),
    "progress": lambda ctx: ctx.progress(1),
    "notify": lambda ctx: ctx.notify("notifications/x"),
    "elicit": lambda ctx: ctx.elicit("?", str),
    "begin_task": lambda ctx: ctx.begin_task(),
    "set_task_message": lambda ctx: ctx.set_task_message("x"),
    "close_stream": lambda ctx: ctx.close_stream(),
}


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("name", SAID)
async def test_a_context_in_another_thread_is_refused_and_its_call_goes_on(
    name, revision, caplog, autojump_clock
):
    server = Server("threads", version="1")

    @server.tool
    async def tool(ctx: Context) -> str:
        with pytest.raises(RuntimeError, match=r"a Context belongs to the thread .* SyncContext.*to_trio"):
            elsewhere(trio.run, SAID[name], ctx)
        await ctx.warning("well")
        return "done"

    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        able = {"elicitation": {}}
        if revision == "2026-07-28":
            call = probe.request(
                "tools/call", {"name": "tool"}, progress_token=1, log_level="debug", capabilities=able
            )
        else:
            session = await probe.initialize(revision, capabilities=able)
            call = session.request("tools/call", {"name": "tool"}, progress_token=1)
        assert (await call.message())["params"]["data"] == "well"
        assert (await call.reply())["result"]["content"][0]["text"] == "done"
        await wait_until_idle(bus)
        statistics = bus.statistics()
        assert (statistics.requests, sum(statistics.pending.values())) == (0, 0)
    assert not caplog.records
