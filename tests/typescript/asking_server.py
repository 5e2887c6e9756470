"""The server of tests/interop, with tools that ask the client, and one whose client must come back for the rest.

Over HTTP it is served by the tests' own process; ``python -m tests.typescript.asking_server`` serves it on stdio.
"""

from typing import Any, Literal

import msgspec
import trio

from mcpbus import AcceptedElicitation, Context, DeclinedElicitation, Elicit, ListRoots, Sample, Server
from tests.interop.interop_server import make_server as make_interop_server

WEATHER_TOOL = {"name": "weather", "description": "Tell the weather.", "inputSchema": {"type": "object"}}


class Person(msgspec.Struct):
    name: str
    age: int = 30
    size: Literal["small", "large"] = "small"


def make_server() -> Server:
    server = make_interop_server()
    _add_askers(server)
    _add_other_askers(server)
    _add_leavers(server)
    return server


def _told(answer: Any) -> str:
    if isinstance(answer, AcceptedElicitation):
        return "accepted " + msgspec.json.encode(answer.data).decode()
    return "declined" if isinstance(answer, DeclinedElicitation) else "cancelled"


def _add_askers(server: Server) -> None:
    @server.tool
    async def ask_person(ctx: Context) -> str:
        return _told(await ctx.elicit("Who are you?", Person))

    @server.tool
    async def ask_page(ctx: Context) -> str:
        return _told(await ctx.elicit_url("Please sign in.", "https://sign.in/here"))

    @server.tool
    async def ask_model(ctx: Context) -> str:
        sampled = await ctx.sample("What is the capital of Peru?", max_tokens=7, system_prompt="Be brief.")
        return f"{sampled.model} says {sampled.text} and stops at {sampled.stop_reason}"

    @server.tool
    async def ask_model_with_tools(ctx: Context) -> str:
        sampled = await ctx.sample("Is it cold?", tools=[WEATHER_TOOL], tool_choice={"mode": "required"})
        return msgspec.json.encode(sampled.content).decode()

    @server.tool
    async def ask_roots(ctx: Context) -> str:
        return ", ".join(f"{root.name}: {root.uri}" for root in await ctx.list_roots())


def _add_other_askers(server: Server) -> None:
    ended = trio.Event()

    @server.tool
    async def ask_everything(ctx: Context) -> str:
        """Ask three things at once, then one more."""
        answers = await ctx.ask_all(
            {"who": Elicit("Who are you?", Person), "model": Sample("What now?"), "roots": ListRoots()}
        )
        again = await ctx.elicit("Who else?", Person)
        return f"{_told(answers['who'])}, {answers['model'].text}, {len(answers['roots'])}, {_told(again)}"

    @server.tool
    async def ask_until_cancelled(ctx: Context) -> str:
        """Ask, and note how the question ended."""
        try:
            return _told(await ctx.elicit("Do you answer?", Person))
        finally:
            ended.set()

    @server.tool
    async def question_ended() -> bool:
        await ended.wait()
        return True

    @server.prompt
    async def introduce(ctx: Context) -> str:
        """Introduce the user."""
        return f"This is {_told(await ctx.elicit('Who are you?', Person))}"

    @server.resource("user://current", mime_type="text/plain")
    async def current(ctx: Context) -> str:
        return _told(await ctx.elicit("Who are you?", Person))


def _add_leavers(server: Server) -> None:
    back = trio.Event()

    @server.tool
    async def leave(ctx: Context) -> str:
        """Close the stream in the middle, so that the client has to come back for what is said after."""
        await ctx.progress(1, 3)
        await ctx.close_stream(retry=0.05)
        await back.wait()
        await ctx.progress(2, 3)
        await ctx.progress(3, 3)
        return "left and came back"

    @server.tool
    async def came_back() -> None:
        back.set()


if __name__ == "__main__":
    make_server().run("stdio")
