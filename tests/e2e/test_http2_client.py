"""HTTP/2 with a client that is not ours, over TLS and real sockets."""

import json
import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio

from mcpbus import Context, ServeOptions, Server
from tests.at_home import OWN_WAY

pytestmark = OWN_WAY

CERTIFICATE = Path(__file__).parents[1] / "serving/localhost.pem"
FIELDS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "httpx", "version": "1"},
    "io.modelcontextprotocol/logLevel": "info",
}


@asynccontextmanager
async def served():
    server = Server("secure", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def tell(ctx: Context) -> str:
        for n in range(3):
            await ctx.info(f"line {n}")
            await trio.sleep(0.01)
        return "told"

    options = ServeOptions(certfile=str(CERTIFICATE), keyfile=str(CERTIFICATE))
    async with server.open(drain_timeout=0) as bus, trio.open_nursery() as nursery:

        async def serve(task_status):
            await bus.serve(bind="127.0.0.1:0", options=options, task_status=task_status)

        (url,) = await nursery.start(serve)
        trust = ssl.create_default_context(cafile=CERTIFICATE)
        trust.check_hostname = False
        with trio.fail_after(30):
            async with httpx.AsyncClient(
                base_url=url.removesuffix("/mcp"), http1=False, http2=True, verify=trust
            ) as client:
                yield client
        nursery.cancel_scope.cancel()


def call(tool, **arguments):
    params = {"name": tool, "arguments": arguments, "_meta": CLAIM}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return {"json": body, "headers": {**FIELDS, "mcp-name": tool}}


@pytest.mark.parametrize("length", [10, 1_000_000])
async def test_a_call_and_its_answer_whatever_their_length(length):
    async with served() as client:
        for _ in range(2):
            answer = await client.post("/mcp", **call("echo", text="x" * length))
            assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
            assert answer.json()["result"]["content"][0]["text"] == "x" * length


async def test_many_calls_at_once_on_one_connection():
    async with served() as client:
        said = {}

        async def ask(n):
            said[n] = (await client.post("/mcp", **call("echo", text=str(n)))).json()

        async with trio.open_nursery() as nursery:
            for n in range(60):
                nursery.start_soon(ask, n)
        assert {n: answer["result"]["content"][0]["text"] for n, answer in said.items()} == {
            n: str(n) for n in range(60)
        }


async def test_what_a_handler_says_comes_on_the_stream():
    async with served() as client, client.stream("POST", "/mcp", **call("tell")) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        events = [json.loads(line[6:]) async for line in answer.aiter_lines() if line.startswith("data: ")]
    assert [event["params"]["data"] for event in events[:3]] == ["line 0", "line 1", "line 2"]
    assert events[3]["result"]["content"][0]["text"] == "told"


async def test_a_client_that_leaves_an_answer_may_ask_again():
    async with served() as client:
        for _ in range(5):
            async with client.stream("POST", "/mcp", **call("tell")):
                pass
        assert (await client.post("/mcp", **call("echo", text="x"))).status_code == 200
