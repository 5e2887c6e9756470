"""A server of the official SDK: all that a client can ask of one, and some habits that go wrong on its own transports."""

import asyncio

import anyio
import anyio.lowlevel
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ClientCapabilities
from pydantic import BaseModel

mcp = MCPServer("notes", version="1.2.3", instructions="Keep notes.")


class Name(BaseModel):
    name: str


@mcp.tool()
async def echo(text: str) -> str:
    return text


@mcp.tool()
def plain(text: str) -> str:
    return text.upper()


@mcp.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return answer.data.name if answer.action == "accept" else answer.action


@mcp.tool()
async def work(steps: int, ctx: Context) -> str:
    for step in range(steps):
        await ctx.report_progress(step + 1, steps)
    await ctx.session.send_log_message("info", "worked", related_request_id=ctx.request_id)
    return "done"


@mcp.tool()
async def stray(ctx: Context) -> int:
    await ctx.session.send_log_message("info", "without a related id")
    return len((await ctx.session.list_roots()).roots)


later_tasks = set()


@mcp.tool()
async def later(ctx: Context) -> str:
    session = ctx.session

    async def speak() -> None:
        await anyio.lowlevel.checkpoint()
        await session.send_log_message("info", "later")

    task = asyncio.get_running_loop().create_task(speak())
    later_tasks.add(task)
    return "soon"


@mcp.tool()
async def client(ctx: Context) -> str:
    params = ctx.session.client_params
    roots = ctx.session.check_client_capability(ClientCapabilities(roots={}))
    return f"{params.client_info.name if params else None} {roots} {ctx.session.protocol_version}"


@mcp.tool()
async def boom(kind: str) -> str:
    if kind == "exit":
        raise SystemExit(3)
    if kind == "cancel":
        asyncio.current_task().cancel()
        await asyncio.sleep(1)
    raise ValueError("no such note")


@mcp.resource("note://{name}")
async def note(name: str) -> str:
    return f"the note {name}"


@mcp.prompt()
async def summarize(name: str) -> str:
    return f"Summarize {name}."


if __name__ == "__main__":
    mcp.run()
