"""A server of the official SDK behind a gateway: over standard input and output, or over HTTP at a free port that it prints.

python official_server.py NAME stdio|http
"""

import os
import sys
from collections import defaultdict
from typing import Annotated

import anyio
import uvicorn
from mcp import MCPError, types
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel, ConfigDict

NAME, TRANSPORT = sys.argv[1:]
KEY = os.environ.get("STATE_KEY", "the same for all replicas of it.")

server = MCPServer(
    NAME,
    version="9.1",
    title="The official one",
    instructions=f"Ask {NAME} for the weather.",
    website_url="https://weather.example",
    request_state_security=RequestStateSecurity(keys=[KEY]),
)
ended: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)


class Place(BaseModel):
    # The SDK shows a title in legacy revisions alone, and a gateway may speak either era to this server.
    model_config = ConfigDict(json_schema_extra=lambda schema: schema.pop("title", None))

    city: str
    days: int = 1


class Forecast(BaseModel):
    city: str
    highs: list[float]


@server.tool(
    title="Forecast", annotations=types.ToolAnnotations(read_only_hint=True), meta={"example.com/a": [1, 2]}
)
async def forecast(city: str, ctx: Context, days: int = 2) -> Forecast:
    """Forecast the weather of a city, day by day."""
    for day in range(days):
        await ctx.report_progress(day + 1, days, f"day {day + 1}")
        await ctx.info(f"{city}, day {day + 1}", logger_name="sky")
    return Forecast(city=city, highs=[20.5] * days)


@server.tool()
async def media() -> list[types.ContentBlock]:
    """Return a block of each kind."""
    return [
        types.TextContent(type="text", text="text", annotations=types.Annotations(audience=["user"])),
        types.ImageContent(type="image", data="iVBORw==", mime_type="image/png"),
        types.AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav"),
        types.ResourceLink(type="resource_link", name="cities", uri=f"{NAME}://cities"),
        types.EmbeddedResource(
            type="resource", resource=types.TextResourceContents(uri=f"{NAME}://inside", text="inside")
        ),
    ]


@server.tool()
async def fail() -> str:
    """Fail as a tool does."""
    raise ValueError("no such city")


@server.tool()
async def refuse() -> str:
    """Fail as a request does."""
    raise MCPError(code=-32050, message="not on Sundays", data={"open": ["Monday"]})


@server.tool()
async def hang(name: str, ctx: Context) -> str:
    """Report progress once, and never end."""
    await ctx.report_progress(1, 2, "hanging")
    try:
        await anyio.sleep_forever()
    finally:
        ended[name].set()
    return "never"


@server.tool()
async def was_cancelled(name: str) -> bool:
    """Whether a call of `hang` was cancelled: waits for it."""
    with anyio.move_on_after(5):
        await ended[name].wait()
    return ended[name].is_set()


def where() -> Elicit[Place]:
    return Elicit("Where are you?", Place)


def verse() -> Sample:
    content = types.TextContent(type="text", text="A verse, please.")
    return Sample([types.SamplingMessage(role="user", content=content)], max_tokens=7, temperature=0.5)


@server.tool()
async def ask(place: Annotated[ElicitationResult[Place], Resolve(where)]) -> str:
    """Ask the user for a place."""
    return f"{place.action} {place.data.model_dump_json() if place.action == 'accept' else None}"


@server.tool()
async def sample(made: Annotated[types.CreateMessageResult, Resolve(verse)]) -> str:
    """Ask the client's model for a verse."""
    return f"{made.model}: {made.content.text}"


@server.tool()
async def roots(found: Annotated[types.ListRootsResult, Resolve(ListRoots)]) -> list[str]:
    """Ask the client for its roots."""
    return [str(root.uri) for root in found.roots]


@server.tool()
async def touch(uri: str, ctx: Context) -> str:
    """Announce that a resource has changed."""
    await ctx.notify_resource_updated(uri)
    if ctx.protocol_version < "2026":
        await ctx.session.send_resource_updated(uri)
    return "touched"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool, and announce it."""
    server.add_tool(lambda: "at your service", name=name, description="A tool that came later.")
    await ctx.notify_tools_changed()
    if ctx.protocol_version < "2026":
        await ctx.session.send_tool_list_changed()
    return "grown"


@server.prompt(title="Packing list")
def pack(city: str, tone: str = "kind") -> str:
    """Describe what to pack."""
    return f"In a {tone} tone, pack for {city}"


@server.resource(f"{NAME}://cities", mime_type="text/plain", title="Cities")
def cities() -> str:
    """List the cities."""
    return "oslo"


@server.resource(f"{NAME}://pixel", mime_type="image/png")
def pixel() -> bytes:
    """Return a picture."""
    return b"\x89PNG"


@server.resource(f"{NAME}://city/{{name}}", mime_type="application/json")
def city(name: str) -> dict[str, str]:
    """Describe a city."""
    return {"city": name}


if NAME in {"official", "remote"}:

    @server.resource("memo://shared")
    def shared() -> str:
        """Return a memo that another server has under the same URI."""
        return f"the memo of {NAME}"


@server.completion()
async def complete(ref, argument, _context) -> types.Completion:
    """Complete the name of a city, or the tone of a prompt."""
    known = ["kind", "stern"] if isinstance(ref, types.PromptReference) else ["bergen", "oslo"]
    found = [each for each in known if each.startswith(argument.value)]
    return types.Completion(values=found, total=len(found))


async def subscribed(_context, _params) -> types.EmptyResult:
    return types.EmptyResult()


for method, kind in (
    ("resources/subscribe", types.SubscribeRequestParams),
    ("resources/unsubscribe", types.UnsubscribeRequestParams),
):
    server._lowlevel_server.add_request_handler(method, kind, subscribed)


def serve_http() -> None:
    """Serve at a free port, and print the URL."""
    config = uvicorn.Config(server.streamable_http_app(), port=0, log_level="error")
    sock = config.bind_socket()
    print(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)  # noqa: T201
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    serve_http() if TRANSPORT == "http" else server.run("stdio")
