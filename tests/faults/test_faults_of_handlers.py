"""Whatever goes wrong in a handler ends its call and nothing else, whichever way its client came in."""

import logging
from itertools import product
from typing import Any

import pytest
import trio
from faults import FAULTS
from ways import LEGACY, MODERN, WAYS

from mcpbus import Server
from mcpbus.testing import open_bus, wait_until_idle


class Faulty:
    """A server that fails as it is told, and a call of it that goes on all the while."""

    def __init__(self):
        self.server = Server("faulty", version="1")
        self.go_on = trio.Event()
        self.held = trio.Event()

        @self.server.tool
        async def fail(kind: str, late: bool) -> Any:
            if late:
                await trio.lowlevel.checkpoint()
            return await FAULTS[kind]()

        @self.server.tool
        async def hold() -> str:
            self.held.set()
            await self.go_on.wait()
            return "held"

        @self.server.tool
        async def echo(text: str) -> str:
            return text


def said(response):
    return response["result"]["content"][0]["text"]


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
@pytest.mark.parametrize("way", WAYS)
async def test_a_fault_of_a_handler_is_its_calls(way, revision, caplog):
    faulty = Faulty()
    held = []
    with trio.fail_after(60):
        async with open_bus(faulty.server) as bus:
            async with (
                WAYS[way](bus, revision) as neighbour,
                WAYS[way](bus, revision) as call_tool,
                trio.open_nursery() as nursery,
            ):

                async def hold():
                    held.append(await neighbour("hold"))

                nursery.start_soon(hold)
                await faulty.held.wait()
                for kind, late in product(FAULTS, [False, True]):  # before its first wait, and after it
                    caplog.clear()
                    response = await call_tool("fail", kind=kind, late=late)
                    failed = (
                        response["error"]["code"] == -32603
                        if "error" in response
                        else response["result"]["isError"]
                    )
                    assert failed, (kind, late)
                    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
                    assert (record.name, record.exc_info is not None) == ("mcpbus", True), (kind, late)
                    assert said(await call_tool("echo", text=kind)) == kind
                    assert bus.statistics().requests == 1, (kind, late)
                faulty.go_on.set()
            assert [said(response) for response in held] == ["held"]
            await wait_until_idle(bus)
            now = bus.statistics()
            assert (now.requests, dict(now.pending), now.actors) == (0, {}, now.sessions)
            assert now.tasks <= 1, "a task besides the clock's"
            assert bus.ledger.balance() == 0
