"""A FastMCP server that counts in the state of a session, which it keeps in the folder of the variable STATE, or in memory."""

import os

from fastmcp import Context, FastMCP
from key_value.aio.stores.filetree import FileTreeStore

folder = os.environ.get("STATE")
mcp = FastMCP("state", session_state_store=None if folder is None else FileTreeStore(data_directory=folder))


@mcp.tool
def where() -> int:
    return os.getpid()


@mcp.tool
async def count(ctx: Context) -> int:
    number = (await ctx.get_state("count") or 0) + 1
    await ctx.set_state("count", number)
    return number
