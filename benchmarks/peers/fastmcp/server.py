"""The peer written for FastMCP: ``server.py PORT``.

Its application answers all calls with JSON, and drops what they would send before, or all that send something with streams: JSON
unless ``BENCH_STREAMS`` is set. It is sessionful, as it is by default; requests of 2026-07-28 have no session in any case. It runs
under uvicorn with uvloop and httptools, as it does by itself. Telemetry is off: nothing is traced here.

For each call of 2026-07-28 it makes the list of all its tools anew, to see what headers the one may ask for. So it has the fifty
tools of the mixture only if ``BENCH_TOOLS`` is set: with them a short call takes twice as long.

As a proxy it stands for a program as `create_proxy` has it do by default: each call is a session of its own in the one process. With one session for
all, as it would have with a client that is connected, a call took twice as long.

There is no tool ``change``: FastMCP serves no ``subscriptions/listen``, and tells no session of another's.
"""

import os
import shlex
import sys
import time

import anyio.lowlevel
import fastmcp
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
from fastmcp.server.event_store import EventStore

# Beyond the default of 100 events for each stream, because as many are measured, and more.
MANY_EVENTS = 20_000
TOOLS = 50
NOTIFICATIONS = 3

fastmcp.settings.telemetry_mode = "off"
server = FastMCP("bench", version="1")


@server.tool(output_schema=None)
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool(output_schema=None)
async def chatter(count: int, context: Context) -> str:
    """Report progress as often as asked for."""
    await report(count, context)
    return "done"


async def later(text: str) -> str:
    """Return the text when others have had their turn."""
    await anyio.lowlevel.checkpoint()
    return text


def in_a_thread(text: str) -> str:
    """Return the text; a plain function is run in a thread."""
    return text


async def with_progress(text: str, context: Context) -> str:
    """Return the text after some notifications."""
    await report(NOTIFICATIONS, context)
    return text


async def report(count: int, context: Context) -> None:
    """Report progress."""
    for number in range(1, count + 1):
        await context.report_progress(number, message=f"clock={time.monotonic_ns()}")


KINDS = (*[later] * 5, in_a_thread, with_progress, *[echo] * 3)
for tool in range(TOOLS if "BENCH_TOOLS" in os.environ else 0):
    server.tool(KINDS[tool % 10], name=f"tool_{tool:02}", output_schema=None)


def main(port: int) -> None:
    """Serve until terminated."""
    if "BENCH_STDIO" in os.environ:
        server.run("stdio", show_banner=False, log_level="WARNING")
        return
    served = server
    if "BENCH_PROXY" in os.environ:
        command, *arguments = shlex.split(os.environ["BENCH_PROXY"])
        served = create_proxy(StdioTransport(command, arguments))
    application = served.http_app(
        transport="sse" if "BENCH_HTTP_SSE" in os.environ else "http",
        json_response="BENCH_STREAMS" not in os.environ,
        event_store=EventStore(max_events_per_stream=MANY_EVENTS)
        if "BENCH_RESUMPTION" in os.environ
        else None,
    )
    uvicorn.run(
        application, port=port, loop="uvloop", http="httptools", log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
