"""A hosted server that is two replicas, with Redis in memory: its sessions, suspended calls, listens and changes, on virtual time."""

import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest
import trio
from hosted_clients import server_of

import mcpbus
from mcpbus.cluster import redis_directory
from mcpbus.cluster.directory import Cluster
from mcpbus.testing import open_probe

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from lua_redis import LuaRedis
from several import at
from troubled_network import HERE, Directory, Network

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

LEASE = 2.0
KNOWN = "mcpbus test client True"


class Replica:
    """One replica, until it is killed."""

    def __init__(self, network, redis, number):
        self.network, self.redis, self.number = network, redis, number

    async def run(self, *, task_status):
        HERE.set(self.number)
        directory = Directory(self.network, self.redis, self.number, LEASE)
        home = f"{'ab'[self.number]}0000001"
        cluster = Cluster(directory=directory, keys=[bytes(32)], home=home, patience=2 * LEASE, silence=LEASE)
        with trio.CancelScope() as self.life:
            async with (
                mcpbus.host(server_of("worker_notes"), loop="trio").open(cluster=cluster) as self.bus,
                open_probe(self.bus.asgi()) as self.probe,
            ):
                task_status.started()
                await trio.sleep_forever()

    def kill(self):
        self.network.dead.add(self.number)
        self.network.changed()
        for recording in self.probe.recordings:
            recording.disconnect()
        self.life.cancel()


@asynccontextmanager
async def replicas():
    network, redis = Network(), LuaRedis()
    async with AsyncExitStack() as stack:
        stack.enter_context(mock.patch.object(redis_directory, "tcp", network))
        nursery = await stack.enter_async_context(trio.open_nursery())
        both = [Replica(network, redis, number) for number in range(2)]
        for replica in both:
            await nursery.start(replica.run)
        yield both
        nursery.cancel_scope.cancel()


async def client_of(session):
    """What the server knows of its client."""
    reply = await session.request("tools/call", {"name": "client", "arguments": {}}).reply()
    return reply["result"]["structuredContent"]["result"]


async def test_a_session_is_served_at_both_replicas_and_outlives_its_own(autojump_clock):
    async with replicas() as (first, second):
        session = await first.probe.initialize()
        elsewhere = at(session, second.probe)
        assert await client_of(session) == await client_of(elsewhere) == KNOWN
        assert (first.bus.statistics().sessions, second.bus.statistics().sessions) == (1, 0)
        first.kill()
        await trio.sleep(3 * LEASE)
        assert await client_of(elsewhere) == KNOWN
        assert second.bus.statistics().sessions == 1


async def test_a_retry_at_another_replica_finds_the_suspended_call(autojump_clock):
    async with replicas() as (first, second):
        capabilities = {"elicitation": {}}
        asked = (
            await first.probe.request(
                "tools/call", {"name": "ask", "arguments": {}}, capabilities=capabilities
            ).reply()
        )["result"]
        assert asked["resultType"] == "input_required"
        answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in asked["inputRequests"]}
        again = {"inputResponses": answers, "requestState": asked["requestState"]}
        retry = {"name": "ask", "arguments": {}, **again}
        reply = await second.probe.request("tools/call", retry, capabilities=capabilities).reply()
        assert reply["result"]["structuredContent"]["result"].startswith("Ada ")


async def test_a_change_reaches_the_listens_of_both_replicas(autojump_clock):
    async with replicas() as both:
        wanted = {"notifications": {"toolsListChanged": True}}
        listens = [replica.probe.request("subscriptions/listen", wanted) for replica in both]
        for listen in listens:
            await listen.message()
        await both[0].probe.request("tools/call", {"name": "change", "arguments": {}}).reply()
        for listen in listens:
            assert (await listen.message())["method"] == "notifications/tools/list_changed"
