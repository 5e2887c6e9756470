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

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
import trio
import uvicorn
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server import Server, ServerRequestContext
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

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


def make_server() -> Server[Any]:
    """Return the server."""
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
    return server


def application() -> Starlette:
    """Return it as an application."""
    server = make_server()
    if "BENCH_HTTP_SSE" in os.environ:
        return http_sse(server)
    return server.streamable_http_app(json_response="BENCH_STREAMS" not in os.environ, max_sessions=MANY)


def http_sse(server: Server[Any]) -> Starlette:
    """Return it as an application that speaks HTTP+SSE."""
    transport = SseServerTransport("/messages/")

    async def serve_stream(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:  # noqa: SLF001
            await server.run(*streams, server.create_initialization_options())
        return Response()

    return Starlette(
        routes=[
            Route("/sse", endpoint=serve_stream),
            Mount("/messages/", app=transport.handle_post_message),
        ]
    )


async def serve_stdio() -> None:
    """Serve standard input and output."""
    server = make_server()
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())


def main(shell: str, port: int) -> None:
    """Serve until terminated."""
    if "BENCH_STDIO" in os.environ:
        anyio.run(serve_stdio, backend_options={"use_uvloop": True})
    elif shell == "uvicorn":
        uvicorn.run(
            application(), port=port, loop="uvloop", http="httptools", log_level="warning", access_log=False
        )
    else:
        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        config.loglevel = "WARNING"
        config.keep_alive_max_requests = 2**63  # its default closes a connection after 1,000 requests
        trio.run(partial(serve, application(), config))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
