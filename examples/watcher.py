"""A folder as resources, whose changes are told, in a trio program: ``FOLDER=notes python examples/watcher.py``."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import watchfiles

from mcpbus import ResourceNotFoundError, Server

FOLDER = Path(os.environ.get("FOLDER", ".")).resolve()


async def watch() -> None:
    """Tell of changes for ever."""
    async for changes in watchfiles.awatch(FOLDER, rust_timeout=200):  # ms, for which its end may wait
        for kind, path in changes:
            server.resource_updated(f"files:///{Path(path).relative_to(FOLDER).as_posix()}")
            if kind != watchfiles.Change.modified:
                server.resources_changed()


@asynccontextmanager
async def watching(_: Server) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield
        nursery.cancel_scope.cancel()


server = Server("watcher", lifespan=watching)


@server.resource("files:///")
async def names() -> list[str]:
    """The names of all files."""
    return sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())


@server.resource("files:///{+path}")
async def content(path: str) -> bytes:
    """What is in a file."""
    try:
        return await trio.Path(FOLDER / path).read_bytes()
    except OSError as error:
        raise ResourceNotFoundError(f"there is no file {path!r}") from error


async def main() -> None:
    async with server.open() as bus, trio.open_nursery() as nursery:
        nursery.start_soon(bus.serve)
        while True:  # what else the program does
            await trio.sleep(60)
            print(bus.statistics().listens, "listen")


if __name__ == "__main__":
    trio.run(main)
