"""Programs that make their server within a function, as most packages with a console script do."""

import argparse
import asyncio
import signal
import sys

import anyio
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.mcpserver import MCPServer
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult

from mcpbus import Server as BusServer

happened = []


def make(name="made"):
    mcp = MCPServer(name)

    @mcp.tool()
    async def loop() -> int:
        return id(asyncio.get_running_loop())

    return mcp


async def make_async():
    happened.append(id(asyncio.get_running_loop()))
    return make("async")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="main")
    given = parser.parse_args()
    sys.stdout.write("starting\n")
    signal.signal(signal.SIGTERM, lambda *_: None)
    asyncio.run(serve(given.name))
    happened.append("ended")


async def serve(name):
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
    happened.append(id(asyncio.get_running_loop()))
    try:
        await make(name).run_stdio_async()
    finally:
        happened.append("closed")


async def lowlevel():
    async def list_tools(ctx, params):
        return ListToolsResult(tools=[])

    server = Server("inner", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        capabilities = server.get_capabilities(NotificationOptions(tools_changed=True))
        options = InitializationOptions(
            server_name="outer", server_version="9.9", capabilities=capabilities, instructions="By program."
        )
        await server.run(read, write, options)


def over_http():
    make("http").run("streamable-http", port=1)


def of_mcpbus():
    BusServer("bus").run(bind="127.0.0.1:1")


breaking = []


def break_now():
    loop, event = breaking
    loop.call_soon_threadsafe(event.set)


async def breaks():
    breaking[:] = asyncio.get_running_loop(), asyncio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make("breaks").run_stdio_async)
        await breaking[1].wait()
        raise ValueError("the database is gone")


def fails_at_end():
    asyncio.run(make("fails").run_stdio_async())
    raise ValueError("not closed")


def exits():
    sys.exit(3)


def exits_with_text():
    sys.exit("no database")


def returns_nothing():
    pass


def returns_a_number():
    return 5


def raises():
    raise ValueError("out of order")


def serves_web():
    uvicorn.run(make().streamable_http_app(), port=1)


def on_trio():
    anyio.run(make().run_stdio_async, backend="trio")


def needs_arguments(path):
    return make(path)
