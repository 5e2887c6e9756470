"""The same folder in an application of FastAPI: ``uvicorn --app-dir examples/fastmcp watcher_fastapi:web``."""

from pathlib import Path

from fastapi import FastAPI, Request
from watcher import FOLDER, mcp

tools = mcp.http_app(path="/mcp")
web = FastAPI(lifespan=tools.lifespan)
web.mount("/files", tools)  # the endpoint is /files/mcp


@web.put("/{name}")
async def write(name: str, request: Request) -> None:
    """Write a file; clients hear of it by the watcher."""
    (FOLDER / Path(name).name).write_bytes(await request.body())
