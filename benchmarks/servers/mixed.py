"""The tools of the mixture, as mcpbus has them (`benchmarks.peers.peer` says what they do)."""

import time

import trio

from benchmarks.mixture import NOTIFICATIONS, TOOLS, tool_name
from mcpbus import Context, Server


async def at_once(text: str) -> str:
    """Return the text."""
    return text


async def later(text: str) -> str:
    """Return the text when others have had their turn."""
    await trio.lowlevel.checkpoint()
    return text


def in_a_thread(text: str) -> str:
    """Return the text from a worker thread."""
    return text


async def with_progress(text: str, ctx: Context) -> str:
    """Return the text after some notifications."""
    for number in range(1, NOTIFICATIONS + 1):
        await ctx.progress(number, message=f"clock={time.monotonic_ns()}")
    return text


_BY_LAST_DIGIT = (*[later] * 5, in_a_thread, with_progress, *[at_once] * 3)


def add_mixture(server: Server) -> None:
    """Register them."""
    for number in range(TOOLS):
        server.tool(name=tool_name(number))(_BY_LAST_DIGIT[number % 10])
