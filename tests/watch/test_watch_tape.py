"""The tape of a watch: the newest messages with their fates, which no single call can flush."""

import trio

from mcpbus import Context, Server
from mcpbus.testing import open_bus, open_probe
from mcpbus.watch import Watch


def loud():
    server = Server("loud")

    @server.tool
    async def shout(times: int, ctx: Context) -> str:
        for number in range(times):
            await ctx.progress(number)
        return "done"

    @server.tool
    async def plain() -> str:
        server.tools_changed()
        return "done"

    @server.tool
    async def change() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, trio.from_thread.run_sync, server.tools_changed)
        return "done"

    return server


async def test_a_flood_leaves_the_messages_of_before(autojump_clock):
    async with (
        open_bus(loud(), watch=Watch(messages=100)) as bus,
        bus.connect(revision="2025-11-25") as client,
    ):
        bus.tools_changed()
        await client.call_tool("shout", {"times": 10_000})
        tape = bus.watch.tape(limit=1000)
        assert tape[-1].method == "notifications/tools/list_changed"
        assert tape[-1].number == 1
        assert len([each for each in tape if each.tool == "shout"]) == 64 + 1  # and the reply
        [call] = bus.watch.records.tape.loud()
        assert (call.name, call.said) == ("shout", 10_000)
        counted = bus.watch.records.tape.fates
        assert sum(n for (method, _, _), n in counted.items() if method == "notifications/progress") == 10_000


async def test_a_program_that_tells_one_client_much_leaves_the_messages_of_others(autojump_clock):
    async with (
        open_bus(loud(), watch=Watch(messages=100)) as bus,
        bus.connect(revision="2025-11-25"),
        bus.connect(revision="2025-11-25"),
    ):
        first, second = bus.sessions.values()
        second.notify("notifications/other")
        for _ in range(500):
            first.notify("notifications/x")
        targets = [each.target for each in bus.watch.tape(limit=1000)]
        assert targets.count(f"session {first.id[:8]}") == 64
        assert targets[-1] == f"session {second.id[:8]}"


async def test_it_says_why_somebody_did_not_get_something(autojump_clock):
    async with open_bus(loud(), watch=Watch()) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-11-25")
        for _ in range(3):
            bus.tools_changed()
        target = f"session {session.id[:8]}"
        newest, *older = bus.watch.tape(target=target, method="notifications/tools/list_changed")
        assert (newest.location, newest.fate) == ("held", None)
        assert [(each.fate, each.reason) for each in older] == [("discarded", "SUPERSEDED")] * 2
        assert len(bus.watch.tape(target=target, reason="SUPERSEDED")) == 2
        assert [each.number for each in bus.watch.tape(target=target, fate="pending")] == [newest.number]
        assert bus.watch.tape(target="session nobody") == []
        assert bus.watch.tape(since=newest.number) == []


async def test_a_message_has_the_call_that_caused_it_also_from_a_thread(autojump_clock):
    async with open_bus(loud(), watch=Watch()) as bus, bus.connect(revision="2025-11-25") as client:
        for tool in ("plain", "change"):
            await client.call_tool(tool)
        told = bus.watch.tape(method="notifications/tools/list_changed")
        assert [each.tool for each in told] == ["change", "plain"]
        bus.tools_changed()
        assert bus.watch.tape(limit=1)[0].request is None


async def test_a_listen_is_named_by_its_request(autojump_clock):
    async with open_bus(loud(), watch=Watch()) as bus, open_probe(bus.asgi()) as probe:
        listen = probe.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await listen.message()
        bus.tools_changed()
        [told] = bus.watch.tape(method="notifications/tools/list_changed")
        assert told.target is not None
        assert told.target.startswith("listen ")


async def test_what_it_keeps_is_counted_as_memory(autojump_clock):
    async with open_bus(loud(), watch=Watch()) as bus, bus.connect(revision="2025-11-25") as client:
        for _ in range(10):
            await client.call_tool("shout", {"times": 20})
        [held] = [each.held for each in bus.budget.accounts() if each.what == "the watch"]
        assert 40_000 < held < 100_000
