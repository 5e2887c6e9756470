"""Notes of several users: tools by user, sessions, state, and a rate limit: ``TOKENS=ada:secret python examples/notes.py``."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcpbus import Context, Depends, Server, Session, ToolError, UnauthorizedError
from mcpbus.middleware import RateLimitingMiddleware

USERS = {
    token: user for user, _, token in (each.partition(":") for each in os.environ.get("TOKENS", "").split())
}
Notes = dict[str, list[str]]


async def authenticate(head: Any) -> str:
    user = USERS.get((head.headers.get("authorization") or "").removeprefix("Bearer "))
    if user is None:
        raise UnauthorizedError
    return user


@asynccontextmanager
async def lifespan(_: Server) -> AsyncIterator[Notes]:
    yield {}


server = Server(
    "notes",
    authenticate=authenticate,
    visible=lambda user, tool: "admin" not in tool.tags or user == "ada",
    lifespan=lifespan,
    middleware=[RateLimitingMiddleware(max_requests_per_second=1, burst_capacity=5)],
)


async def own(ctx: Context) -> list[str]:
    notes: Notes = ctx.state
    return notes.setdefault(ctx.principal, [])


@server.on_session
async def begin(session: Session) -> None:
    session.state["drafts"] = []


@server.tool
async def draft(text: str, ctx: Context) -> int:
    """Keep a text for this session; return how many there are."""
    if ctx.session is None:
        raise ToolError("there is no session to keep it for: call write")
    drafts: list[str] = ctx.session.state["drafts"]
    drafts.append(text)
    return len(drafts)


@server.tool
async def write(ctx: Context, text: str | None = None, notes: list[str] = Depends(own)) -> list[str]:
    """Keep a text, or the drafts of this session, for good; return all notes of this user."""
    if text is not None:
        notes.append(text)
    elif ctx.session is not None:
        notes += ctx.session.state["drafts"]
        ctx.session.state["drafts"] = []
    return notes


@server.tool(tags={"admin"})
async def everybody(ctx: Context) -> Notes:
    """The notes of all users."""
    notes: Notes = ctx.state
    return notes


if __name__ == "__main__":
    server.run()
