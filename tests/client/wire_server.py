"""A server of mcpbus for clients that are not in process: opened in a test over HTTP, or a program on standard input and output."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import trio

from mcpbus import Context, Server, ToolError


@dataclass
class Place:
    city: Literal["oslo", "bergen"]
    days: int = 1


def make_server() -> Server:  # noqa: C901 - a list
    server = Server("wire", version="1.2", instructions="Ask for the weather.", page_size=2)
    server.ended = trio.Event()

    @server.tool
    async def forecast(city: str, ctx: Context, days: int = 2) -> list[str]:
        """Forecast the weather of a city."""
        for day in range(days):
            await ctx.progress(day + 1, days, f"day {day + 1}")
        await ctx.info(f"forecast for {city}")
        return ["rain"] * days

    @server.tool
    async def fail() -> str:
        raise ToolError("no such city")

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask where the user is."""
        answer = await ctx.elicit("Where are you?", Place)
        return f"{type(answer).__name__} {getattr(answer, 'data', None)}"

    @server.tool
    async def sample(ctx: Context) -> str:
        return str(await ctx.sample("hello", max_tokens=5))

    @server.tool
    async def mirror(
        region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})],
    ) -> str:
        return region

    @server.tool
    async def hang(ctx: Context) -> None:
        """Wait until nobody waits for it."""
        await ctx.progress(1)
        try:
            await trio.sleep_forever()
        finally:
            server.ended.set()

    @server.tool
    async def outlive() -> str:
        """Wait until `hang` has ended."""
        await server.ended.wait()
        return "it has ended"

    @server.prompt
    async def pack(city: str, days: int = 3) -> str:
        """What to pack."""
        return f"Pack for {days} days in {city}"

    @server.resource("wire://cities")
    async def cities() -> list[str]:
        """The cities."""
        return ["oslo"]

    @server.resource("wire://cities/{city}")
    async def city(city: str) -> str:
        return city

    return server


server = make_server()

if __name__ == "__main__":
    server.run("stdio")
