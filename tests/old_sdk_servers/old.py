"""Servers of version 1 of the official SDK, and of what is built on it: one of each kind, with the same tools."""

import asyncio
from contextlib import nullcontext
from typing import Annotated

import anyio
from fastapi import FastAPI
from fastapi_mcp import FastApiMCP
from fastmcp import Context as FastContext
from fastmcp import FastMCP as Fast
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from pydantic import BaseModel, Field


class Name(BaseModel):
    name: str


official = FastMCP("official", instructions="An old one.")


@official.tool()
async def add(a: int, b: int) -> int:
    return a + b


@official.tool()
async def stray(ctx: Context) -> str:
    await ctx.session.send_log_message("info", "without a related id")
    return f"{len((await ctx.session.list_roots()).roots)} roots"


@official.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return answer.data.name if answer.action == "accept" else answer.action


@official.tool()
async def work(ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step + 1, 3)
    return "done"


@official.tool()
async def header(ctx: Context) -> str:
    return ctx.request_context.request.headers["x-trace"]


@official.tool()
async def region(name: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    return name


@official.tool()
async def of_asyncio() -> str:
    asyncio.get_running_loop()
    return "done"


@official.tool()
async def sleep() -> str:
    try:
        await anyio.sleep(60)
    finally:
        cancelled.append(True)
    return "never"


@official.tool()
async def boom() -> str:
    raise SystemExit(3)


cancelled: list[bool] = []

told: list[object] = []

lowlevel = Server("lowlevel")
with_lifespan = Server("with lifespan", lifespan=lambda _: nullcontext({}))


@lowlevel.subscribe_resource()
async def subscribe(uri) -> None:
    told.append(str(uri))


@lowlevel.set_logging_level()
async def set_level(level) -> None:
    told.append(level)


@lowlevel.list_tools()
@with_lifespan.list_tools()
async def no_tools():
    kept.append(lowlevel.request_context.session)
    return []


kept: list[ServerSession] = []

third = Fast("third")


@third.tool
async def plus(a: int, b: int) -> int:
    return a + b


@third.tool
async def ask_third(ctx: FastContext) -> str:
    answer = await ctx.elicit("Who are you?", response_type=Name)
    return answer.data.name


api = FastAPI()


@api.get("/sum", operation_id="sum")
async def sum_of(a: int, b: int) -> int:
    return a + b


from_api = FastApiMCP(api)


@from_api.server.call_tool()
async def lines(name: str, arguments: dict) -> list:
    """Stand in for the tools of the API: send a line each tenth of a second, without a related id."""
    session = from_api.server.request_context.session
    for number in range(3):
        await session.send_log_message("info", f"line {number}")
        await anyio.sleep(0.1)
    return []
