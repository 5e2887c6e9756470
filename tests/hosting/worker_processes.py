"""A hosted server that two worker processes serve, and a legacy session with it over HTTP."""

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import httpx
import trio

BOTH = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served(server, **environment):
    """Serve a file, and yield an HTTP client that opens a connection for each request."""
    command = [
        sys.executable,
        "-m",
        "mcpbus",
        "serve",
        str(server),
        "--workers",
        "2",
        "--bind",
        "127.0.0.1:0",
    ]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE, env=os.environ | environment)
    said = b""
    try:
        while b"workers (Ctrl-C" not in said:
            data = await process.stderr.receive_some()
            assert data, said.decode()
            said += data
        # Each request comes on a connection of its own, to either worker.
        limits = httpx.Limits(max_keepalive_connections=0)
        url = said.decode().split(" is served at ")[1].split()[0]
        async with httpx.AsyncClient(limits=limits, timeout=30, base_url=url) as http:
            yield http
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


def read(response):
    """The last message of a response, whichever form it has."""
    lines = response.text.splitlines()
    if response.headers["content-type"].startswith("text/event-stream"):
        return json.loads([line for line in lines if line.startswith("data: {")][-1].removeprefix("data: "))
    return json.loads(lines[-1])


class Session:
    """A legacy session over HTTP."""

    def __init__(self, http):
        self.http = http
        self.headers = BOTH

    async def post(self, method, params, number=1):
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        body |= {} if number is None else {"id": number}
        return await self.http.post("", json=body, headers=self.headers)

    async def begin(self):
        info = {"name": "ada's client", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        begun = await self.post("initialize", params)
        self.headers = BOTH | {
            "mcp-session-id": begun.headers["mcp-session-id"],
            "mcp-protocol-version": "2025-11-25",
        }
        await self.post("notifications/initialized", {}, None)

    async def call(self, tool):
        answer = read(await self.post("tools/call", {"name": tool, "arguments": {}}))
        return answer["result"]["structuredContent"]["result"]

    async def kill(self, owner):
        """Kill the process that has the session, and wait until another one has it."""
        os.kill(owner, signal.SIGKILL)
        with trio.fail_after(30):
            while (await self.post("tools/list", {})).status_code != 200:
                pass
