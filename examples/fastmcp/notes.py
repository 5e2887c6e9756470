"""Notes of several users with FastMCP 4.1."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentContext, Depends
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.server.middleware.rate_limiting import RateLimitingMiddleware
from fastmcp.tools import Tool

USERS = {
    token: {"client_id": user, "scopes": []}
    for user, _, token in (each.partition(":") for each in os.environ.get("TOKENS", "").split())
}
Notes = dict[str, list[str]]


def who() -> str:
    token = get_access_token()
    if token is None:
        raise ToolError("who are you?")
    return token.client_id


class AdminsOnly(Middleware):
    async def on_list_tools(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Sequence[Tool]]
    ) -> Sequence[Tool]:
        return [tool for tool in await call_next(context) if "admin" not in tool.tags or who() == "ada"]

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        if context.fastmcp_context is not None:
            tool = await context.fastmcp_context.fastmcp.get_tool(context.message.name)
            if tool is not None and "admin" in tool.tags and who() != "ada":
                raise ToolError(f"there is no tool {tool.name!r}")
        return await call_next(context)


@asynccontextmanager
async def lifespan(_: FastMCP) -> AsyncIterator[dict[str, Notes]]:
    yield {"notes": {}}


mcp = FastMCP(
    "notes",
    auth=StaticTokenVerifier(USERS),
    lifespan=lifespan,
    middleware=[
        AdminsOnly(),
        RateLimitingMiddleware(
            max_requests_per_second=1, burst_capacity=5, get_client_id=lambda context: who()
        ),
    ],
)


def own(ctx: Context = CurrentContext()) -> list[str]:
    notes: Notes = ctx.lifespan_context["notes"]
    return notes.setdefault(who(), [])


@mcp.tool
async def draft(text: str, ctx: Context) -> int:
    """Keep a text for this session; return how many there are."""
    drafts = [*(await ctx.get_state("drafts") or []), text]
    await ctx.set_state("drafts", drafts)
    return len(drafts)


@mcp.tool
async def write(ctx: Context, text: str | None = None, notes: list[str] = Depends(own)) -> list[str]:
    """Keep a text, or the drafts of this session, for good; return all notes of this user."""
    if text is not None:
        notes.append(text)
    else:
        notes += await ctx.get_state("drafts") or []
        await ctx.set_state("drafts", [])
    return notes


@mcp.tool(tags={"admin"})
async def everybody(ctx: Context) -> Notes:
    """The notes of all users."""
    notes: Notes = ctx.lifespan_context["notes"]
    return notes


if __name__ == "__main__":
    mcp.run(transport="http")
