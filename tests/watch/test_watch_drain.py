"""A drain names the requests that it waits for, and those that it ends."""

import logging
from contextlib import suppress

import pytest
import trio

from mcpbus import ProtocolError, Server
from mcpbus.testing import open_bus
from mcpbus.watch import Watch


@pytest.mark.parametrize("watch", [pytest.param(None, marks=pytest.mark.unwatched), Watch()])
async def test_a_drain_names_what_it_ends(watch, autojump_clock, caplog):
    caplog.set_level(logging.INFO, "mcpbus")
    server = Server("slow")

    @server.tool
    async def reserve(city: str) -> str:
        await trio.sleep(100)
        return city

    async with trio.open_nursery() as nursery:
        async with open_bus(server, watch=watch, drain_timeout=4) as bus:
            client = await nursery.start(_connected, bus)
            [session_id] = bus.sessions
            for _ in range(12):
                nursery.start_soon(_reserve, client)
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    lines = [record.getMessage() for record in caplog.records]
    waits = [line for line in lines if line.startswith("the shutdown waits for ")]
    ends = [line for line in lines if line.startswith("the shutdown has ended ")]
    for said, first in ((waits, "the shutdown waits for "), (ends, "the shutdown has ended ")):
        assert len(said) == 11
        assert said[0].startswith(f"{first}tools/call reserve of alice, session {session_id[:8]}")
        assert (" s at test_watch_drain.py:" in said[0]) == (watch is not None)
        assert said[-1] == f"{first}2 more requests"
    assert "Lyon" not in caplog.text


async def _reserve(client):
    with suppress(ProtocolError):
        await client.call_tool("reserve", {"city": "Lyon"})


async def _connected(bus, task_status):
    async with bus.connect(revision="2025-11-25", principal="alice") as client:
        task_status.started(client)
        await trio.sleep_forever()
