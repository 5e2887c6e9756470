"""The second act of `examples.failures.transports`, with the official SDK 1.x: python -m examples.hosted.transports runs it.

A server for Stata serves two transports in one process. Its tool sends log lines through the session, without the id of the request.
The SDK sends such lines to the GET stream of the client. A client that sends POSTs alone has none, and sees the result only. Hosted
by mcpbus, without a change, each line comes with the call.
"""

from collections.abc import Callable

import anyio
from mcp.server.fastmcp import Context, FastMCP

from examples.failures.client import HttpClient
from examples.hosted.compare import before_and_after, run

mcp = FastMCP("stata", log_level="WARNING")


@mcp.tool()
async def run_do_file(name: str, ctx: Context) -> str:
    """Run a do-file, and show each line of it while it runs."""
    for line in range(1, 4):
        await ctx.session.send_log_message("info", f"{name}: . regress y x{line}")
        await anyio.sleep(0.1)
    return f"{name}: done"


app = mcp.streamable_http_app()
app.mount("/", mcp.sse_app())


async def call(url: str, show: Callable[[str], object]) -> list[str]:
    """Call the tool, and return what came with its answer."""
    client = HttpClient(url)
    await client.initialize()
    seen = []
    async with client.open("tools/call", {"name": "run_do_file", "arguments": {"name": "a.do"}}) as answer:
        async for message in answer:
            result = message.get("result")
            seen.append(message["params"]["data"] if result is None else result["content"][0]["text"])
            show(f"  {seen[-1]}")
    return seen


async def demonstrate(show: Callable[[str], object]) -> tuple[list[str], list[str]]:
    """Show the call before and after."""
    return await before_and_after(mcp, app, call, show)


if __name__ == "__main__":
    run(demonstrate)
