"""A server with much to see: hung calls, a flood, a question, a slow reader, and a client whose texts are markup."""

import logging
import sys

import trio

from mcpbus import Context, Limits, Server, ToolError
from mcpbus.client import connect_http

MARKUP = "<img src=x onerror=document.title='markup'>"

server = Server("shop")


@server.tool
async def reserve(city: str, ctx: Context) -> str:
    await ctx.info("one moment")
    await poll_shelf()
    return city


async def poll_shelf() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)


@server.tool
async def export(rows: int, ctx: Context) -> str:
    for row in range(rows):
        await ctx.progress(row)
    return "done"


@server.tool
async def odd(ctx: Context) -> str:
    return str(await ctx.elicit(MARKUP, str))


@server.tool
async def fail() -> str:
    raise ToolError("no")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


async def never(*_: object) -> dict[str, object]:
    await trio.sleep_forever()
    return {}


async def use(url: str) -> None:
    """Be the clients of the server."""
    asking = {
        "capabilities": {"elicitation": {}},
        "on_input_request": never,
        "client_info": {"name": MARKUP, "version": "1"},
    }
    async with (
        connect_http(url, revision="2025-11-25", **asking) as old,
        connect_http(url, **asking) as new,
        trio.open_nursery() as nursery,
    ):
        for city in ("Lyon", "Oslo", "Bergen"):
            nursery.start_soon(new.call_tool, "reserve", {"city": city})
        nursery.start_soon(old.call_tool, "odd")
        nursery.start_soon(new.call_tool, "odd")
        await new.call_tool("export", {"rows": 5000}, on_notification=lambda *_: None)
        while True:
            await new.call_tool("add", {"a": 1, "b": 2})
            await new.call_tool("fail")
            server.tools_changed()
            await trio.sleep(0.2)


async def main() -> None:
    """Serve, and use it."""
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(
            lambda task_status: server.serve(
                bind="127.0.0.1:0",
                inspect=sys.argv[1],
                limits=Limits(max_listens=1),
                task_status=task_status,
            )
        )
        logging.getLogger("busy").info("ready")
        nursery.start_soon(use, url)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    trio.run(main)
