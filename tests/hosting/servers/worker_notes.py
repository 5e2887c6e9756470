"""A server of the official SDK that tells in which process it runs, and what that knows of its client."""

import os

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

mcp = MCPServer("workers")


class Name(BaseModel):
    name: str


@mcp.tool()
async def where() -> int:
    return os.getpid()


@mcp.tool()
async def client(ctx: Context) -> str:
    # The session of the SDK has no public way to its connection.
    connection = ctx.session._connection
    return f"{ctx.session.client_params.client_info.name} {connection.initialized.is_set()}"


@mcp.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return f"{answer.data.name} {os.getpid()}"


@mcp.tool()
async def change(ctx: Context) -> str:
    await ctx.notify_tools_changed()
    return "changed"
