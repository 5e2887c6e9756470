"""The second act of `examples.failures.live`, with fastapi_mcp: python -m examples.hosted.live runs it.

A server runs scripts, and logs each step. fastapi_mcp collects the whole response before it sends the first byte of it: the head and
all lines come at the end of the script. Hosted by mcpbus, without a change, each line comes when it is sent.
"""

import time
from collections.abc import Callable

import anyio
from fastapi import FastAPI, Request
from fastapi_mcp import FastApiMCP
from fastapi_mcp.transport.http import FastApiHttpSessionManager
from mcp.types import TextContent

from examples.failures.client import HttpClient
from examples.hosted.compare import before_and_after, run

app = FastAPI()


@app.post("/scripts", operation_id="run_script")
async def run_script(steps: int) -> str:
    """Run a script."""
    return f"{steps} steps done"


mcp = FastApiMCP(app)


@mcp.server.call_tool()
async def call_tool(name: str, arguments: dict) -> list[TextContent]:
    """Run the script, and log each step with the id of the request."""
    context = mcp.server.request_context
    for step in range(1, arguments["steps"] + 1):
        line = f"step {step}: still running"
        await context.session.send_log_message("info", line, related_request_id=context.request_id)
        await anyio.sleep(0.3)
    return [TextContent(type="text", text=f"{arguments['steps']} steps done")]


manager = FastApiHttpSessionManager(mcp.server, json_response=False)


@app.api_route("/mcp", methods=["GET", "POST", "DELETE"], include_in_schema=False)
async def endpoint(request: Request):
    """Serve MCP, as `mcp.mount_http(app)` does, with streams allowed."""
    return await manager.handle_fastapi_request(request)


async def call(url: str, show: Callable[[str], object]) -> list[float]:
    """Call the tool, and return the seconds until the head, each line and the result."""
    client = HttpClient(url)
    await client.initialize()
    start, times = time.perf_counter(), []
    async with client.open("tools/call", {"name": "run_script", "arguments": {"steps": 3}}) as answer:
        times.append(time.perf_counter() - start)
        show(f"  the head, after {times[-1]:.1f} s")
        async for message in answer:
            times.append(time.perf_counter() - start)
            said = message["params"]["data"] if "params" in message else "the result"
            show(f"  {said}, after {times[-1]:.1f} s")
    return times


async def demonstrate(show: Callable[[str], object]) -> tuple[list[float], list[float]]:
    """Show the call before and after."""
    return await before_and_after(mcp, app, call, show)


if __name__ == "__main__":
    run(demonstrate)
