"""A bus whose tools write down what happens to them, for clients in the same process."""

from contextlib import asynccontextmanager

import pytest
import trio

from mcpbus import Context, Limits, Server
from mcpbus.testing import open_bus, wait_until_idle

REVISIONS = pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
LEGACY, MODERN = "2025-11-25", "2026-07-28"


class Place:
    """An open bus whose tools write down what happens to them."""

    def __init__(self):
        self.server = Server("place", version="1")
        self.log = []
        self.go = trio.Event()

        @self.server.tool
        async def cannot_wait(key: str = "") -> str:
            self.log.append(f"cannot_wait {key}")
            return key

        @self.server.tool
        async def does_not_wait(key: str = "") -> str:
            if key == "wait":
                await trio.sleep_forever()
            self.log.append(f"does_not_wait {key}")
            return key

        @self.server.tool
        async def waits(key: str = "") -> str:
            self.log.append(f"waits {key}")
            try:
                await self.go.wait()
            except trio.Cancelled:
                self.log.append(f"cancelled {key}")
                raise
            return key

        @self.server.tool
        async def speaks(ctx: Context, key: str = "") -> str:
            for step in range(3):
                await ctx.progress(step, 3)
            return key

    @property
    def made(self):
        """How many actors there have been."""
        return self.bus.system.statistics().spawned

    async def assert_nothing_is_left(self):
        await wait_until_idle(self.bus)
        now = self.bus.statistics()
        assert (now.requests, dict(now.pending), now.sessions, now.actors) == (0, {}, 0, 0)
        assert now.tasks <= 1, "a task besides the clock's"
        assert self.bus.ledger.balance() == 0


@asynccontextmanager
async def placed(**limits):
    """Open a place, and see afterwards that nothing is left."""
    place = Place()
    async with open_bus(place.server, limits=Limits(**limits)) as bus:
        place.bus = bus
        yield place
        await place.assert_nothing_is_left()


def text(result):
    return result["content"][0]["text"]


async def call(client, name, key="", **options):
    return text(await client.call_tool(name, {"key": key}, **options))
