"""A hosted server that is two worker processes: its sessions, suspended calls and listens, also after a worker was killed."""

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import trio

from mcpbus.client import connect_http
from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

SERVER = Path(__file__).parent / "servers" / "worker_notes.py"
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
BOTH = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served():
    command = [
        sys.executable,
        "-m",
        "mcpbus",
        "serve",
        str(SERVER),
        "--workers",
        "2",
        "--bind",
        "127.0.0.1:0",
    ]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
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


async def call_modern(http, tool, **more):
    params = {"name": tool, "arguments": {}, "_meta": CLAIM, **more}
    headers = BOTH | {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return read(await http.post("", json=body, headers=headers))["result"]


async def test_a_session_stays_in_one_process_and_continues_in_the_other_one_after_a_kill():
    async with served() as http:
        session = Session(http)
        await session.begin()
        owners = {await session.call("where") for _ in range(8)}
        assert len(owners) == 1
        assert await session.call("client") == "ada's client True"
        os.kill(owners.pop(), signal.SIGKILL)
        while True:
            answered = await session.post("tools/call", {"name": "where", "arguments": {}})
            if answered.status_code == 200:
                break
        assert await session.call("client") == "ada's client True"


async def test_a_retry_finds_the_suspended_call_in_whichever_process_it_waits():
    async with served() as http:
        for _ in range(4):
            asked = await call_modern(http, "ask")
            assert asked["resultType"] == "input_required"
            [key] = asked["inputRequests"]
            answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
            result = await call_modern(
                http, "ask", inputResponses=answers, requestState=asked["requestState"]
            )
            assert result["structuredContent"]["result"].startswith("Ada ")


async def test_listens_of_all_processes_get_a_change():
    heard = []

    async def listen(url, task_status):
        async with connect_http(url) as client, client.listen(tools=True) as changes:
            task_status.started()
            heard.append((await anext(changes))[0])

    async with served() as http, trio.open_nursery() as nursery:
        for _ in range(6):
            await nursery.start(lambda task_status: listen(str(http.base_url).rstrip("/"), task_status))
        await call_modern(http, "change")
    assert heard == ["notifications/tools/list_changed"] * 6
