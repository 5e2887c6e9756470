"""Pushing without a request: from what a lifespan starts, through the server itself, and from plain functions."""

from contextlib import asynccontextmanager

import pytest
import trio

from mcpbus import DELIVERED, Server, SyncContext
from mcpbus.testing import open_bus, open_client

URI = "sensor://cellar"
UPDATED = ("notifications/resources/updated", URI)


def sensors(**options):
    server = Server("s", **options)
    server.add_resource(URI, lambda: "12 degrees")
    return server


async def heard(changes):
    method, params = await anext(changes)
    return method, params.get("uri")


async def test_a_task_of_the_lifespan_pushes(autojump_clock):
    @asynccontextmanager
    async def lifespan(server):
        async def watch():
            while True:
                await trio.sleep(1)
                server.resource_updated(URI)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield
            nursery.cancel_scope.cancel()

    async with open_client(sensors(lifespan=lifespan)) as client, client.listen(uris=[URI]) as changes:
        assert [await heard(changes), await heard(changes)] == [UPDATED, UPDATED]
    assert trio.current_time() == pytest.approx(2, abs=0.1)


async def test_nobody_is_told_while_the_lifespan_begins_and_ends(autojump_clock):
    told = []

    @asynccontextmanager
    async def lifespan(server):
        told.append(server.resource_updated(URI))
        with pytest.raises(RuntimeError, match="its lifespan has not yielded yet"):
            _ = server.bus
        yield "state"
        told.append(server.resource_updated(URI))
        told.append(server.tools_changed())

    server = sensors(lifespan=lifespan)
    async with open_client(server) as client, client.listen(uris=[URI], tools=True):
        pass
    assert [len(broadcast) for broadcast in told] == [0, 0, 0]


PUSHES = {
    "tools": (Server.tools_changed, "notifications/tools/list_changed"),
    "prompts": (Server.prompts_changed, "notifications/prompts/list_changed"),
    "resources": (Server.resources_changed, "notifications/resources/list_changed"),
}


@pytest.mark.parametrize("kind", PUSHES)
async def test_the_server_pushes_as_its_bus_does(kind, autojump_clock):
    push, method = PUSHES[kind]
    server = Server("s", capabilities=("tools", "prompts", "resources"))
    async with open_bus(server) as bus:
        assert server.bus is bus
        async with bus.connect() as client, client.listen(**{kind: True}) as changes:
            broadcast = push(server)
            assert (await anext(changes))[0] == method
            assert await broadcast.settled(timeout=1) == {DELIVERED: 1}


@pytest.mark.parametrize("use", [lambda server: server.resource_updated(URI), lambda server: server.bus])
async def test_a_server_that_is_not_open_says_so(use, autojump_clock):
    server = sensors()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"server 's' has .*: it is not open; server.run\(\)"):
            use(server)
        async with open_bus(server):
            use(server)


@pytest.mark.parametrize("inline", [True, False])
async def test_a_plain_function_pushes_through_its_context(inline):
    server = Server("s", capabilities=("tools", "prompts", "resources"))
    server.add_resource(URI, lambda: "12 degrees")

    @server.tool
    def measure(ctx: SyncContext) -> int:
        pushed = [
            ctx.bus.resource_updated(URI),
            ctx.bus.tools_changed(),
            ctx.bus.prompts_changed(),
            ctx.bus.resources_changed(),
        ]
        assert [len(broadcast) for broadcast in pushed] == [1] * 4
        return ctx.bus.statistics().emitted

    async with open_bus(server) as bus:
        server.runner.inline = inline
        listening = {"tools": True, "prompts": True, "resources": True}
        async with bus.connect() as client, client.listen(uris=[URI], **listening) as changes:
            assert (await client.call_tool("measure"))["content"][0][
                "text"
            ] == "5"  # with the acknowledgement
            assert await heard(changes) == UPDATED
            kinds = [(await anext(changes))[0].split("/")[1] for _ in range(3)]
            assert kinds == ["tools", "prompts", "resources"]
