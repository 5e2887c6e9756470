"""The second act of `examples.failures.register`, with the official SDK 1.x: python -m examples.hosted.register runs it.

A gateway adds the tools of three upstream servers for a client, and announces each of them. The client opens its GET stream later, as
many clients do. The SDK has dropped all announcements by then, so the client knows none of the tools. Hosted by mcpbus, without a
change, one announcement waits for the stream. The two before it are superseded, as they state the same.
"""

from collections.abc import Callable

import trio
from mcp.server.fastmcp import Context, FastMCP

from examples.failures.client import HttpClient
from examples.hosted.compare import before_and_after, run

mcp = FastMCP("gateway", log_level="WARNING", warn_on_duplicate_tools=False)


@mcp.tool()
async def connect(upstreams: list[str], ctx: Context) -> str:
    """Add a tool for each upstream server."""
    for name in upstreams:
        mcp.add_tool(lambda query: f"an answer to {query}", name=name, description="Ask it.")
        await ctx.session.send_tool_list_changed()
    return "connected"


app = mcp.streamable_http_app()


async def listen(url: str, show: Callable[[str], object]) -> list[str]:
    """Let the gateway add tools, open the GET stream afterwards, and return the notifications on it."""
    client = HttpClient(url)
    await client.initialize()
    await client.call("connect", {"upstreams": ["weather", "maps", "mail"]})
    seen: list[str] = []
    async with client.get() as stream:
        with trio.move_on_after(0.5):
            async for message in stream:
                seen.append(message["method"])
                show(f"  {message['method']}")
    show(f"  {len(seen)} announcements")
    return seen


async def demonstrate(show: Callable[[str], object]) -> tuple[list[str], list[str]]:
    """Show the announcements before and after."""
    return await before_and_after(mcp, app, listen, show)


if __name__ == "__main__":
    run(demonstrate)
