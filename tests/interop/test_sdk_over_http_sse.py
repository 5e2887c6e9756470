"""The official SDK's client over HTTP+SSE, alone and beside one over Streamable HTTP."""

import pytest
import trio
from mcp import types
from mcp.client.sse import sse_client
from sdk_checks import CHECKS
from sdk_client import DEADLINE, LEGACY, REVISIONS, TOLERATED, connected, served, to_url

from mcpbus import DELIVERED

pytestmark = TOLERATED


def to_sse(url, revision, **options):
    return connected("http+sse", sse_client(url.replace("/mcp", "/sse")), revision, **options)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_sdks_client_does_all_over_http_sse(revision):
    async with served() as server, to_sse(server.url, revision, log_level="warning") as link:
        for check in CHECKS:
            await check(link)


async def test_a_call_over_either_transport_is_heard_by_its_caller_alone():
    async def call(link, said, until):
        async def progress(value, _total, message):
            said.append((value, message))
            await trio.lowlevel.checkpoint()

        await link.call("count", progress, until=until)

    async with (
        served() as server,
        to_sse(server.url, LEGACY[0]) as old,
        to_url(server.url, LEGACY[-1]) as new,
        to_url(server.url, LEGACY[-1]) as other,
    ):
        over_old, over_new = [], []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, old, over_old, "both run")
            nursery.start_soon(call, new, over_new, "both run")
            while len(over_old) + len(over_new) < 6:
                await trio.lowlevel.checkpoint()
            await other.call("signal", name="both run")
        assert over_old == [(1, None), (2, None), (3, None)]  # 2024-11-05 has no message in progress
        assert over_new == [(1, "step 1"), (2, "step 2"), (3, "step 3")]
        for link in (old, new):
            lines = [m for m in link.heard.messages if isinstance(m, types.LoggingMessageNotification)]
            assert [line.params.data for line in lines] == [{"line": n} for n in (1, 2, 3)]
        assert await server.bus.tools_changed().settled(DEADLINE) == {DELIVERED: 3}
        for link in (old, new, other):
            await link.heard.of(types.ToolListChangedNotification)
        assert len(other.heard.messages) == 1


async def test_nothing_is_left_of_a_client_that_left():
    async with served() as server:
        async with to_sse(server.url, LEGACY[0]) as link:
            await link.call("add", a=1)
        while server.bus.statistics().actors:
            await trio.lowlevel.checkpoint()
        assert server.bus.statistics().sessions == 0
