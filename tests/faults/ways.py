"""The ways into a bus, all alike: whoever is connected calls a tool, and gets the JSON-RPC response."""

import json
from contextlib import asynccontextmanager

import h2.events
import trio
from channels import INITIALIZED, call, initialize, sse, ws
from peers import Http2, head_of, serving

from mcpbus import ProtocolError
from mcpbus.testing import open_probe
from mcpbus.transports.lines import run_channel

LEGACY, MODERN = "2025-11-25", "2026-07-28"


@asynccontextmanager
async def over_http(bus, revision, shell):
    async with open_probe(bus.asgi(), shell=shell) as probe:
        client = probe if revision == MODERN else await probe.initialize(revision)

        async def call_tool(name, **arguments):
            return await client.request("tools/call", {"name": name, "arguments": arguments}).reply()

        yield call_tool


def over_lane(bus, revision):
    return over_http(bus, revision, "http1")


def over_asgi(bus, revision):
    return over_http(bus, revision, "asgi")


@asynccontextmanager
async def over_http2(bus, revision):
    async with serving(bus.asgi()) as served:
        peer = await Http2(await served.connect()).start()
        fields = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]

        async def exchange(message, *more):
            head = [
                (name, "localhost" if name == ":authority" else value)
                for name, value in head_of("POST", "/mcp")
            ]
            stream_id = await peer.request(headers=[*head, *fields, *more], end=False)
            await peer.send_data(stream_id, json.dumps(message).encode(), end=True)
            await peer.until_stream(stream_id, h2.events.StreamEnded)
            response = await peer.until_stream(stream_id, h2.events.ResponseReceived)
            return dict(response.headers), peer.bodies[stream_id]

        if revision == LEGACY:
            head, _ = await exchange(initialize(revision))
            fields += [("mcp-session-id", head["mcp-session-id"]), ("mcp-protocol-version", revision)]
            await exchange(INITIALIZED)

        async def call_tool(name, **arguments):
            modern = revision == MODERN
            mirrored = [
                ("mcp-protocol-version", revision),
                ("mcp-method", "tools/call"),
                ("mcp-name", name),
            ]
            message = call(1, name, arguments, modern=modern)
            _, body = await exchange(message, *(mirrored if modern else ()))
            return json.loads(body.rpartition(b"data: ")[2])

        yield call_tool


class Numbered:
    """Calls over a channel, and finds each response by its number."""

    def __init__(self, revision, say, messages, until):
        self._modern = revision == MODERN
        self._say = say
        self._messages = messages
        self._until = until
        self._last = 0

    async def call_tool(self, name, **arguments):
        self._last = number = self._last + 1
        result = self._say(call(number, name, arguments, modern=self._modern))
        if result is not None:
            await result
        await self._until(lambda: self._find(number) is not None)
        return self._find(number)

    def _find(self, number):
        return next((m for m in self._messages() if m.get("id") == number and "method" not in m), None)


def handshake(revision):
    return revision if revision == LEGACY else None


@asynccontextmanager
async def over_sse(bus, revision):
    async with open_probe(bus.asgi()) as probe, sse(probe, handshake(revision)) as client:
        stream = client.stream
        yield Numbered(revision, client.say, lambda: stream.messages, stream.wait_for).call_tool


@asynccontextmanager
async def over_websocket(bus, revision):
    async with ws(bus.asgi(), handshake(revision)) as client:
        yield Numbered(revision, client.say, lambda: client.messages, client._until).call_tool


@asynccontextmanager
async def over_lines(bus, revision):
    """As stdio has it, without a process."""
    into, source = trio.open_memory_channel(100)
    got, changed = [], trio.Condition()

    def say(message):
        into.send_nowait(json.dumps(message).encode() + b"\n")

    async def receive(data):
        async with changed:
            got.extend(json.loads(line) for line in data.splitlines())
            changed.notify_all()

    async def until(condition):
        async with changed:
            while not condition():
                await changed.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_channel, bus, source, receive)
        if revision == LEGACY:
            say(initialize(revision))
            say(INITIALIZED)
            await until(lambda: got)
        yield Numbered(revision, say, lambda: got, until).call_tool
        into.close()


@asynccontextmanager
async def in_process(bus, revision):
    async with bus.connect(revision=revision) as client:

        async def call_tool(name, **arguments):
            try:
                return {"result": await client.call_tool(name, arguments)}
            except ProtocolError as error:
                return {"error": {"code": error.code, "message": error.message}}

        yield call_tool


WAYS = {
    "the lane": over_lane,
    "ASGI": over_asgi,
    "HTTP/2": over_http2,
    "HTTP+SSE": over_sse,
    "WebSocket": over_websocket,
    "stdio": over_lines,
    "in process": in_process,
}
