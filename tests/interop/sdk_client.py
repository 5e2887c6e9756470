"""The official SDK's client, connected to our server over each transport and under each revision that it speaks."""

import os
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import interop_server
import pytest
import trio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen

import mcpbus
from mcpbus import Bus

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
REVISIONS = (*LEGACY, MODERN)
DEADLINE = 60

# The SDK marks what 2026-07-28 has dropped as deprecated, and leaves the generators of streams that it abandons to
# the garbage collector, which trio reports.
TOLERATED = pytest.mark.filterwarnings(
    "ignore::mcp.shared.exceptions.MCPDeprecationWarning",
    "ignore:Async generator 'http(x|core)2:ResourceWarning",
)


class Heard:
    """What the server said outside of results, in order."""

    def __init__(self):
        self.messages = []
        self._more = trio.Event()

    async def __call__(self, message):
        self.messages.append(message)
        self._more.set()
        self._more = trio.Event()
        await trio.lowlevel.checkpoint()

    async def until(self, wanted):
        """Wait for the first message that is as wanted, and return it."""
        while True:
            for message in self.messages:
                if wanted(message):
                    return message
            await self._more.wait()

    async def of(self, kind):
        return await self.until(lambda message: isinstance(message, kind))


@attrs.frozen
class Link:
    """A connected client."""

    session: ClientSession
    revision: str
    heard: Heard
    transport: str

    @property
    def modern(self):
        return self.revision == MODERN

    async def call(self, tool, /, progress=None, **arguments):
        return await self.session.call_tool(tool, arguments, progress_callback=progress)

    def listen(self, **wanted):
        return listen(self.session, **wanted)


async def handshake(session, revision, capabilities=None):
    """Connect as a client of that revision does. The SDK's own `initialize` proposes its latest one only."""
    if revision == MODERN:
        await session.discover()
        return
    params = types.InitializeRequestParams(
        protocol_version=revision,
        capabilities=capabilities or types.ClientCapabilities(),
        client_info=types.Implementation(name="interop", version="1"),
    )
    result = await session.send_request(types.InitializeRequest(params=params), types.InitializeResult)
    session.adopt(result)
    await session.send_notification(types.InitializedNotification())


@attrs.frozen
class Served:
    """The interop server, served over HTTP."""

    bus: Bus
    url: str
    stop: Callable[[], None]
    """Cancels serving; the bus stays open."""


@asynccontextmanager
async def served(server=None, event_store=None, **options):
    opening = (server or interop_server.make_server()).open(drain_timeout=0, event_store=event_store)
    async with opening as bus, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def serve(task_status):
            with scope:
                await bus.serve(bind="127.0.0.1:0", task_status=task_status, **options)

        with trio.fail_after(DEADLINE):
            (url,) = await nursery.start(serve)
            yield Served(bus, url, scope.cancel)
        scope.cancel()


@asynccontextmanager
async def connected(transport, streams, revision, log_level=None, capabilities=None, **callbacks):
    heard = Heard()
    with trio.fail_after(DEADLINE):
        async with (
            streams as (reader, writer),
            ClientSession(reader, writer, message_handler=heard, log_level=log_level, **callbacks) as session,
        ):
            await handshake(session, revision, capabilities)
            yield Link(session, revision, heard, transport)


def to_url(url, revision, **options):
    return connected("http", streamable_http_client(url), revision, **options)


@asynccontextmanager
async def over_http(revision, **options):
    async with served() as server, to_url(server.url, revision, **options) as link:
        yield link


def stdio_program(*arguments):
    root = str(Path(mcpbus.__file__).parents[1])
    return StdioServerParameters(
        command=sys.executable,
        args=list(arguments or [interop_server.__file__]),
        env={"PYTHONPATH": root, **os.environ},
        cwd=root,
    )


@asynccontextmanager
async def over_stdio(revision, **options):
    async with connected("stdio", stdio_client(stdio_program()), revision, **options) as link:
        yield link
