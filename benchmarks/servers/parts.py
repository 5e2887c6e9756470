"""Tools that mcpbus alone has: what its calls cost is measured part by part."""

import time

import trio

from benchmarks.servers.mixed import at_once
from mcpbus import Context, Server, SyncContext

PAUSE_SECONDS = 0.001
ALIKE = 50


async def after_1_ms(text: str) -> str:
    """Return the text after a while."""
    await trio.sleep(PAUSE_SECONDS)
    return text


async def chatter_1_ms_apart(count: int, ctx: Context) -> str:
    """Report progress as often as asked for, after a while each time."""
    for number in range(1, count + 1):
        await trio.sleep(PAUSE_SECONDS)
        await ctx.progress(number, message=f"clock={time.monotonic_ns()}")
    return "said"


def chatter_from_a_thread(count: int, ctx: SyncContext) -> str:
    """Report progress as often as asked for, from a worker thread."""
    for number in range(1, count + 1):
        ctx.progress(number, message=f"clock={time.monotonic_ns()}")
    return "said"


def add_parts(server: Server) -> None:
    """Register them."""
    for tool in (after_1_ms, chatter_1_ms_apart, chatter_from_a_thread):
        server.tool(tool)
    for number in range(ALIKE):
        server.tool(name=f"echo_{number:02}")(at_once)
