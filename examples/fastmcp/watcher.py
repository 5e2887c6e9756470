"""The watched folder with FastMCP 4.1. It tells one session at a time, of 2025-11-25 and older; so all are kept here."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import watchfiles
from fastmcp import FastMCP
from fastmcp.exceptions import ResourceError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from pydantic import AnyUrl

FOLDER = Path(os.environ.get("FOLDER", ".")).resolve()
sessions: set[Any] = set()


class Keep(Middleware):
    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        if context.fastmcp_context is not None and context.fastmcp_context.request_context is not None:
            sessions.add(context.fastmcp_context.session)
        return await call_next(context)


async def watch() -> None:
    """Tell of changes for ever."""
    async for changes in watchfiles.awatch(FOLDER, rust_timeout=200):  # ms, for which its end may wait
        for kind, path in changes:
            uri = AnyUrl(f"files:///{Path(path).relative_to(FOLDER).as_posix()}")
            for session in list(sessions):
                try:
                    await session.send_resource_updated(uri)
                    if kind != watchfiles.Change.modified:
                        await session.send_resource_list_changed()
                except Exception:  # noqa: BLE001 - it has ended
                    sessions.discard(session)


@asynccontextmanager
async def watching(_: FastMCP) -> AsyncIterator[None]:
    task = asyncio.create_task(watch())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


mcp = FastMCP("watcher", lifespan=watching, middleware=[Keep()])


@mcp.resource("files:///", mime_type="application/json")
async def names() -> list[str]:
    """The names of all files."""
    return sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())


@mcp.resource("files:///{path*}")
async def content(path: str) -> bytes:
    """What is in a file."""
    try:
        return await asyncio.to_thread((FOLDER / path).read_bytes)
    except OSError as error:
        raise ResourceError(f"there is no file {path!r}") from error


async def main() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(mcp.run_http_async())
        while True:  # what else the program does
            await asyncio.sleep(60)
            print(len(sessions), "sessions")


if __name__ == "__main__":
    asyncio.run(main())
