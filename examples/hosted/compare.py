"""What these programs share: one server on its own transport, then hosted by mcpbus, and the same client for both.

Install `mcp<2`, `fastapi_mcp` and `uvicorn` beside mcpbus to run them.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio
import uvicorn

import mcpbus

T = TypeVar("T")
Script = Callable[[str, Callable[[str], object]], Awaitable[T]]
"""A client. It gets the URL of the server, and a function that shows a line."""


@asynccontextmanager
async def on_its_own(app: Any, path: str = "/mcp") -> AsyncIterator[str]:
    """Serve an ASGI application with uvicorn, and yield the URL of its MCP endpoint."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, server.run)
        try:
            while not server.started:
                await trio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}{path}"
        finally:
            server.should_exit = server.force_exit = True


@asynccontextmanager
async def hosted(server: Any) -> AsyncIterator[str]:
    """Serve the same server with mcpbus, and yield the URL of its MCP endpoint."""
    async with mcpbus.host(server).open(drain_timeout=0) as bus, trio.open_nursery() as nursery:
        serve = partial(bus.serve, bind="127.0.0.1:0")
        [url] = await nursery.start(lambda task_status: serve(task_status=task_status))
        yield url
        nursery.cancel_scope.cancel()


async def before_and_after(
    server: Any, app: Any, script: Script[T], show: Callable[[str], object]
) -> tuple[T, T]:
    """Run a client on the server's own transport, then on mcpbus, and return what it saw each time."""
    show("on its own transport:")
    async with on_its_own(app) as url:
        before = await script(url, show)
    show("hosted by mcpbus:")
    async with hosted(server) as url:
        return before, await script(url, show)


def run(demonstrate: Callable[[Callable[[str], object]], Awaitable[object]]) -> None:
    """Run such a program; each line has the seconds since its start."""
    start = time.perf_counter()
    trio.run(demonstrate, lambda line: print(f"{time.perf_counter() - start:6.2f} s  {line}", flush=True))
