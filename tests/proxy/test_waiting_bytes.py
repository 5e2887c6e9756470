"""Requests that an upstream server does not read: they count in the memory budget, and leave it when their calls end."""

import sys

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus import Limits, ProtocolError
from mcpbus.proxy import Proxy

OLD = "2025-11-25"
DEAF = r"""
import json, sys, time
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if method == "tools/call":
        time.sleep(600)
"""
PIPE_BYTES = 200_000
"""More than the pipe of a program holds."""


@pytest.fixture
def proxy(monkeypatch):
    monkeypatch.setattr("mcpbus.client.stdio._END_SECONDS", 0.1)
    return Proxy([sys.executable, "-c", DEAF], name="deaf", revision=OLD)


async def call(client, outcomes):
    try:
        outcomes.append(await client.call_tool("t", {"x": "y" * PIPE_BYTES}))
    except ProtocolError as error:
        outcomes.append(str(error))


async def waiting(bus):
    """Return how many bytes wait for upstream servers once nothing moves."""
    await wait_all_tasks_blocked(0.1)
    held = sum(each.held for each in bus.budget.accounts() if "upstream" in each.what)
    return held / 2  # as arguments, and as they are written


async def test_bytes_that_wait_count_and_are_withdrawn_when_their_calls_end(proxy):
    with trio.fail_after(60):
        async with proxy.open() as bus, bus.connect(revision=OLD) as client:
            await client.call_tool("t")  # the program reads nothing from now on
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(call, client, [])
                assert 9 * PIPE_BYTES < await waiting(bus) < 11 * PIPE_BYTES
                nursery.cancel_scope.cancel()
            assert await waiting(bus) < 2 * PIPE_BYTES  # the one that is being written


async def test_requests_are_withdrawn_where_memory_is_full(proxy, caplog):
    outcomes = []
    with trio.fail_after(60):
        async with (
            proxy.open(limits=Limits(memory_bytes=12 * PIPE_BYTES)) as bus,
            bus.connect(revision=OLD) as client,
        ):
            await client.call_tool("t")
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(call, client, outcomes)
                assert await waiting(bus) < 6 * PIPE_BYTES
                assert len(outcomes) >= 10
                # The request that is being written stays for as long as the program does not read. Others go all the same.
                for _ in range(20):
                    nursery.start_soon(call, client, outcomes)
                assert await waiting(bus) < 6 * PIPE_BYTES
                assert len(outcomes) >= 30
                assert not bus.budget.full
                nursery.cancel_scope.cancel()
    assert all("did not answer" in each or "memory" in each or "Too much" in each for each in outcomes)
