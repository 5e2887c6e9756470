"""The same folder in an application of FastAPI: ``uvicorn --app-dir examples watcher_fastapi:web --timeout-graceful-shutdown 5``."""

from pathlib import Path

from fastapi import FastAPI, Request
from watcher import FOLDER, server

from mcpbus.asyncio import asgi

tools = asgi(server)
web = FastAPI(lifespan=tools.lifespan)
web.mount("/files", tools)  # the endpoint is /files/mcp


@web.put("/{name}")
async def write(name: str, request: Request) -> None:
    """Write a file; clients hear of it by the watcher."""
    (FOLDER / Path(name).name).write_bytes(await request.body())
