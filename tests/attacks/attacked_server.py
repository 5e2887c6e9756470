"""The server that clients attack: that of the memory tests, with an honest tool, and tools whose arguments are hard to validate."""

import sys
from pathlib import Path
from typing import Annotated, Any

import trio
from pydantic import BaseModel, Field

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

from memory_app import server

from mcpbus import Context


class Leaf(BaseModel):
    """The end of a tree."""

    value: int


class Left(BaseModel):
    """A branch that looks like `Right`."""

    child: "Left | Right | Leaf"


class Right(BaseModel):
    """A branch that looks like `Left`."""

    child: "Left | Right | Leaf"


class Point(BaseModel):
    """Something with three rules to break."""

    x: Annotated[int, Field(ge=0)]
    y: Annotated[int, Field(le=0)]
    name: Annotated[str, Field(pattern="^[a-z]+$")]


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def tree(root: Left | Right) -> str:
    """Take a tree of ambiguous branches."""
    return type(root).__name__


@server.tool
async def points(items: list[Point]) -> str:
    """Take many points."""
    return str(len(items))


@server.tool
async def anything(data: Any) -> str:
    """Take anything."""
    return type(data).__name__


@server.tool
async def tables(rows: list[dict[str, int | float | bool | None]]) -> str:
    """Take rows of values that may have several types."""
    return str(len(rows))


@server.tool
async def speak(ctx: Context, lines: int) -> str:
    """Send many log lines and progress."""
    for n in range(lines):
        ctx.log("info", "x" * 1000)
        ctx.progress(n + 1)
        if n % 100 == 0:
            await trio.lowlevel.checkpoint()
    return "spoken"


@server.tool(task="optional")
async def result() -> str:
    """Return a long result, which a task keeps."""
    return "x" * 500_000
