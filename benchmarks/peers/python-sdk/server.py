"""The peer written for the official Python SDK: ``server.py uvicorn|hypercorn PORT``.

It is the SDK's low-level server, which is a little faster than its decorators and alone lets an author say how many may listen.
Arguments are validated with pydantic, as the decorators do it. The SDK's session manager answers all calls with JSON, and drops
what they would send before, or all that send something with streams: JSON unless ``BENCH_STREAMS`` is set.

uvicorn runs with uvloop and httptools; hypercorn on trio, as our own servers do. Tracing is taken out, as the SDK's documentation
tells how: nothing is traced here.
"""

import os
import sys
import time
from functools import partial
from typing import Any

import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
import trio
import uvicorn
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server import Server, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from pydantic import BaseModel
from starlette.applications import Starlette

VALUE = "bench://value"
# Beyond the defaults of 1,024 listens and 10,000 sessions, because as many are measured, and some more.
MANY = 20_000
NOTIFICATIONS = 3

Context = ServerRequestContext[Any, Any]


class Nothing(BaseModel):
    """No arguments."""


class Echo(BaseModel):
    """The arguments of `echo`."""

    text: str


class Chatter(BaseModel):
    """The arguments of `chatter`."""

    count: int


TOOLS = {
    name: types.Tool(name=name, description=description, input_schema=arguments.model_json_schema())
    for name, description, arguments in (
        ("echo", "Return the text.", Echo),
        ("chatter", "Report progress as often as asked for.", Chatter),
        ("change", "Announce a change to all who asked for it.", Nothing),
        *((f"tool_{number:02}", "Return the text, in one way or another.", Echo) for number in range(50)),
    )
}
changes = InMemorySubscriptionBus()
subscribed: set[Any] = set()


async def list_tools(
    _context: Context, _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    """Return the tools."""
    return types.ListToolsResult(tools=list(TOOLS.values()))


async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Run a tool."""
    match params.name:
        case "echo":
            text = Echo.model_validate(params.arguments).text
        case "chatter":
            await report(context, Chatter.model_validate(params.arguments).count)
            text = "done"
        case "change":
            text = clock()
            await announce()
        case tool:
            text = Echo.model_validate(params.arguments).text
            match int(tool[-1]):
                case 0 | 1 | 2 | 3 | 4:
                    await anyio.lowlevel.checkpoint()
                case 5:
                    text = await anyio.to_thread.run_sync(blocking, text)
                case 6:
                    await report(context, NOTIFICATIONS)
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def report(context: Context, count: int) -> None:
    """Report progress."""
    for number in range(1, count + 1):
        await context.session.report_progress(number, message=clock())


def blocking(text: str) -> str:
    """Return the text."""
    return text


async def announce() -> None:
    """Announce the change to the clients of both eras."""
    await changes.publish(ResourceUpdated(uri=VALUE))
    for session in list(subscribed):
        await session.send_resource_updated(VALUE)


async def subscribe(context: Context, _params: types.SubscribeRequestParams) -> types.EmptyResult:
    """Keep a session that wants to hear of the change."""
    subscribed.add(context.session)
    return types.EmptyResult()


def clock() -> str:
    """Return the time."""
    return f"clock={time.monotonic_ns()}"


def application() -> Starlette:
    """Return the server as an application."""
    server = Server(
        "bench",
        version="1",
        get_tool_input_schema=lambda name: TOOLS[name].input_schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscribe_resource=subscribe,
        on_subscriptions_listen=ListenHandler(changes, max_subscriptions=MANY),
    )
    server.middleware.clear()
    return server.streamable_http_app(json_response="BENCH_STREAMS" not in os.environ, max_sessions=MANY)


def main(shell: str, port: int) -> None:
    """Serve until terminated."""
    if shell == "uvicorn":
        uvicorn.run(
            application(), port=port, loop="uvloop", http="httptools", log_level="warning", access_log=False
        )
        return
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "WARNING"
    config.keep_alive_max_requests = 2**63  # its default closes a connection after 1,000 requests
    trio.run(partial(serve, application(), config))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
