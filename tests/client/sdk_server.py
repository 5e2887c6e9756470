"""A server of the official SDK: a program on standard input and output, or over HTTP at the port that it is given."""

import sys
from typing import Annotated, Literal

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("sdk", version="9.1", instructions="Ask for the weather.")


class Place(BaseModel):
    city: Literal["oslo", "bergen"]
    days: int = 1


@server.tool()
async def forecast(city: str, ctx: Context, days: int = 2) -> list[str]:
    """Forecast the weather of a city."""
    for day in range(days):
        await ctx.report_progress(day + 1, days, f"day {day + 1}")
    await ctx.info(f"forecast for {city}")
    return ["rain"] * days


@server.tool()
async def fail() -> str:
    raise ValueError("no such city")


def where() -> Elicit[Place]:
    return Elicit("Where are you?", Place)


@server.tool()
async def ask(place: Annotated[ElicitationResult[Place], Resolve(where)]) -> str:
    """Ask where the user is, as each revision has it."""
    return f"{place.action} {place.data.city if place.action == 'accept' else None}"


@server.tool()
async def change(ctx: Context) -> str:
    """Say that the tools have changed."""
    await ctx.session.send_tool_list_changed()
    return "changed"


@server.prompt()
def pack(city: str) -> str:
    """What to pack."""
    return f"Pack for {city}"


@server.resource("sdk://cities")
def cities() -> str:
    """The cities."""
    return "oslo"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            server.run("stdio")
        case ["http", port]:
            server.run("streamable-http", port=int(port))
