"""A server that any client can bring down, to see that the measurements notice it."""

import time

from mcpbus import Server

server = Server("weak")
kept: list[bytes] = []


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def grow() -> str:
    """Keep 300 MB."""
    kept.append(b"x" * 300 * 1024 * 1024)
    return "grown"


@server.tool
async def block() -> str:
    """Let no other call run for a while."""
    time.sleep(1.5)  # noqa: ASYNC251 - that is the fault
    return "blocked"
