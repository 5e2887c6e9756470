"""The server that the official SDK's client talks to: in the test's own process over HTTP, or run as a program on stdio."""

from typing import Literal

import attrs
import msgspec
import trio

from mcpbus import (
    Audio,
    Completion,
    Context,
    File,
    Image,
    ResourceNotFoundError,
    Server,
    SyncContext,
    ToolError,
)
from mcpbus.protocol.messages import ToolAnnotations

CITIES = ("Berlin", "Bern", "Lima")
SECRET = "the password is swordfish"
PIXEL = b"\x89PNG pixel"


class Day(msgspec.Struct):
    high: int
    sky: Literal["clear", "grey"] = "clear"


@attrs.frozen
class Diary:
    """What happened, by name, for tests that see the server only through its tools."""

    events: dict[str, trio.Event] = attrs.field(factory=dict)

    def event(self, name: str) -> trio.Event:
        return self.events.setdefault(name, trio.Event())


def make_server() -> Server:
    server = Server(
        "interop", version="1.2.3", title="Interop", instructions="Ask for the weather.", page_size=4
    )
    diary = Diary()
    _add_tools(server)
    _add_steered_tools(server, diary)
    _add_readables(server)
    return server


def _add_tools(server: Server) -> None:
    @server.tool(title="Sum", annotations=ToolAnnotations(read_only_hint=True))
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def forecast(city: str, days: int = 2) -> dict[str, Day]:
        """Forecast the weather of a city."""
        return {f"{city} {n}": Day(high=20 + n) for n in range(days)}

    @server.tool
    async def media() -> list:
        return ["text", Image(PIXEL), Audio(b"RIFF"), File(b"bytes", "file:///a.bin", "application/x-bin")]

    @server.tool
    async def refuse() -> str:
        raise ToolError("no such city: try Bern")

    @server.tool
    async def crash() -> str:
        raise RuntimeError(SECRET)

    @server.tool
    def blocking(ctx: SyncContext, steps: int = 2) -> str:
        for n in range(steps):
            ctx.progress(n + 1, steps)
        return "from a thread"

    @server.tool(
        input_schema={
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }
    )
    async def mirror(arguments: dict) -> str:
        return arguments["region"]


def _add_steered_tools(server: Server, diary: Diary) -> None:
    @server.tool
    async def happened(name: str) -> bool:
        """Wait until something has happened."""
        await diary.event(name).wait()
        return True

    @server.tool
    async def signal(name: str) -> None:
        diary.event(name).set()

    @server.tool
    async def count(ctx: Context, until: str, steps: int = 3) -> str:
        """Report progress and log lines, then wait until something has happened."""
        for n in range(steps):
            await ctx.progress(n + 1, steps, f"step {n + 1}")
            await ctx.debug(f"detail {n + 1}")
            await ctx.warning({"line": n + 1})
        await diary.event(until).wait()
        return "counted"

    @server.tool
    async def hang(ctx: Context, name: str) -> str:
        """Run until cancelled, and note that."""
        await ctx.progress(1)
        try:
            await trio.sleep_forever()
        finally:
            diary.event(name).set()

    @server.tool
    async def grow(name: str) -> None:
        """Add a tool."""

        async def added() -> str:
            return f"{name} at your service"

        server.add_tool(added, name=name)

    @server.tool
    async def touch(ctx: Context, uri: str) -> None:
        """Say that a resource has changed."""
        ctx.bus.resource_updated(uri)


def _add_readables(server: Server) -> None:
    @server.resource("config://app", title="Configuration")
    async def config() -> dict[str, int]:
        """The configuration."""
        return {"retries": 3}

    @server.resource("file:///logo.png", mime_type="image/png")
    async def logo() -> bytes:
        return PIXEL

    @server.resource("cities://{name}", mime_type="text/plain")
    async def city(name: str) -> str:
        if name not in CITIES:
            raise ResourceNotFoundError(name)
        return f"{name} is a city"

    @server.prompt(title="Review")
    async def review(code: str, tone: str = "kind") -> str:
        """Review a piece of code."""
        return f"In a {tone} tone, review {code}"

    @server.completion("cities://{name}", "name")
    async def complete_city(value: str) -> Completion:
        return Completion([city for city in CITIES if city.startswith(value)], total=len(CITIES))

    @server.completion("review", "tone")
    async def complete_tone(value: str, chosen: dict[str, str]) -> list[str]:
        return [f"{value}ind to {chosen['code']}"]


if __name__ == "__main__":
    make_server().run("stdio")
