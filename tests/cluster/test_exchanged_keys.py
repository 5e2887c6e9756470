"""Keys that are exchanged one after the other while all goes on: each deploy has the next list, and those before and after it serve together."""

from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest
from several import at, kill, quiet
from test_forwarding import FORM, call, text

from mcpbus import Context, Server
from mcpbus.cluster import RedisReplicas
from mcpbus.serving import ServingError
from mcpbus.testing import MemoryDirectory, open_bus, open_probe

OLD, NEW = b"the old key of the server", b"the new key of the server"
DEPLOYS = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
STEPS = [*pairwise(DEPLOYS)]
IDS = ["the new one is known", "the new one is used", "the old one is gone"]


def make(keys):
    server = Server("keys", secret_keys=keys)

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("who?", FORM, key="who")).data["name"]

    return server


@asynccontextmanager
async def open_with(*lists):
    """Open a bus for each list of keys; yields the buses, with a probe of each."""
    directory = MemoryDirectory()
    async with AsyncExitStack() as stack:
        buses, probes = [], []
        for keys in lists:
            buses.append(
                await stack.enter_async_context(open_bus(make(keys), cluster=directory.cluster(keys)))
            )
            probes.append(await stack.enter_async_context(open_probe(buses[-1].asgi())))
        yield directory, buses, probes


@pytest.mark.parametrize("step", STEPS, ids=IDS)
@pytest.mark.parametrize("way", [0, 1], ids=["began before", "began after"])
async def test_sessions_and_calls_that_wait_go_on_at_both(step, way, autojump_clock):
    async with open_with(*step) as (_, _buses, probes):
        session = at(await probes[way].initialize(), probes[1 - way])
        assert text(await call(session, "echo", text="on").reply()) == "on"
        asking = {"capabilities": {"elicitation": {}}}
        asked = await probes[way].request("tools/call", {"name": "ask"}, **asking).reply()
        answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}
        state = asked["result"]["requestState"]
        said = {"name": "ask", "requestState": state, "inputResponses": answers}
        assert text(await probes[1 - way].request("tools/call", said, **asking).reply()) == "Ada"


async def test_a_session_of_the_old_key_outlives_its_process_while_that_key_is_accepted(autojump_clock):
    async with open_with((OLD, NEW), (NEW, OLD), (NEW,)) as (directory, buses, probes):
        session = await probes[0].initialize()
        await kill(buses[0], directory)
        await quiet(buses)
        assert text(await call(at(session, probes[1]), "echo", text="on").reply()) == "on"
        assert (await at(session, probes[2]).request("ping").ended()).status == 404


async def test_who_has_no_key_in_common_serves_alone(autojump_clock, caplog):
    async with open_with((OLD,), (NEW,)) as (_, buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        assert (await session.request("ping").ended()).status == 404
        assert not any(bus.node.links.by_home for bus in buses)


async def test_more_keys_than_can_be_told_of_are_refused_at_the_start():
    server = make([b"key %d of very many others" % number for number in range(257)])
    with pytest.raises(ServingError, match="256 secret_keys, and there are 257"):
        async with server.open(cluster=RedisReplicas("redis://127.0.0.1:1")):
            pytest.fail("it has begun")
