"""A server on a bus, and clients of the transports on which one connection carries everything."""

import json
from contextlib import asynccontextmanager

import trio

from mcpbus import Context, Limits, Server, UnauthorizedError
from mcpbus.testing import open_bus, open_probe, wait_until_idle

ORIGIN = {"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}}
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    **ORIGIN,
}
TOKENS = {"ada": "ada", "bob": "bob"}


def request(id, method, params=None, *, modern=False, token=None):  # noqa: A002 - the protocol's word
    params = dict(params or {})
    meta = dict(CLAIM) if modern else {}
    if token is not None:
        meta["progressToken"] = token
    if meta:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id, tool, arguments=None, **meta):  # noqa: A002 - the protocol's word
    return request(id, "tools/call", {"name": tool, "arguments": arguments or {}}, **meta)


def notification(method, params=None):
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


def initialize(revision, id=0):  # noqa: A002 - the protocol's word
    params = {
        "protocolVersion": revision,
        "capabilities": {"elicitation": {}, "roots": {}},
        "clientInfo": {"name": "test", "version": "1"},
    }
    return request(id, "initialize", params)


INITIALIZED = notification("notifications/initialized")


class House:
    """An open bus, its ASGI application, and what its tools do."""

    def __init__(self, bus, app, probe):
        self.bus = bus
        self.app = app
        self.probe = probe

    async def quiet(self):
        await wait_until_idle(self.bus)

    async def assert_nothing_is_left(self):
        await self.quiet()
        now = self.bus.statistics()
        assert (now.requests, dict(now.pending), now.sessions) == (0, {}, 0)
        assert now.actors == 0
        assert self.bus.ledger.balance() == 0


def make_server(outcomes, **options):
    server = Server("house", version="1", **options)

    @server.tool
    async def count(ctx: Context, steps: int = 2) -> str:
        for step in range(steps):
            await ctx.progress(step + 1, steps, f"step {step + 1}")
            await ctx.info(f"line {step + 1}")
        return "counted"

    @server.tool
    async def hang(key: str = "") -> str:
        try:
            await trio.sleep_forever()
        finally:
            outcomes.append(f"{key} ended")

    @server.tool
    async def swell(size: int, seconds: float = 0.01) -> str:
        await trio.sleep(seconds)
        return "x" * size

    @server.tool
    async def nap(seconds: float) -> str:
        await trio.sleep(seconds)
        return "rested"

    @server.tool
    async def ask(ctx: Context) -> int:
        answer = await ctx.list_roots()
        return len(answer)

    @server.resource("res://a")
    async def resource() -> str:
        return "content"

    return server


async def authenticate(head):
    token = head.headers.get(b"authorization")
    if token not in TOKENS:
        raise UnauthorizedError('Bearer realm="house"')
    return TOKENS[token]


@asynccontextmanager
async def house(*, limits=None, drain_timeout=5.0, outcomes=None, http=None, **options):
    """Open a bus with HTTP clients in memory."""
    server = make_server([] if outcomes is None else outcomes, **options)
    async with open_bus(server, limits=Limits(**(limits or {})), drain_timeout=drain_timeout) as bus:
        app = bus.asgi(**(http or {}))
        async with open_probe(app) as probe:
            yield House(bus, app, probe)


class SseClient:
    """A client of HTTP+SSE: its stream, and what it POSTs."""

    def __init__(self, probe, stream, headers):
        self.stream = stream
        self._probe = probe
        self._headers = headers

    def post(self, message, **headers):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        fields = {"content-type": "application/json", **self._headers, **headers}
        return self._probe.send("POST", body, fields, target=self.stream.endpoint)

    async def say(self, message):
        answer = await self.post(message).ended()
        assert (answer.status, answer.body) == (202, b"Accepted")

    async def ask(self, message):
        """Say it, and return the next thing that comes."""
        await self.say(message)
        return await self.stream.message()


@asynccontextmanager
async def sse(probe, revision=None, **headers):
    """Connect over HTTP+SSE; initialized, if a revision is given."""
    stream = probe.send("GET", headers={"accept": "text/event-stream", **headers}, target="/sse")
    await stream.begun()
    await stream.wait_for(lambda: stream.endpoint is not None or stream.over, 60)
    client = SseClient(probe, stream, headers)
    if revision is not None:
        result = (await client.ask(initialize(revision)))["result"]
        assert result["protocolVersion"] == revision
        await client.say(INITIALIZED)
    yield client
    stream.disconnect()


class Conversation:
    """What a client of WebSocket was told, one message a frame, and how it says something; `tell` is its own."""

    def __init__(self):
        self.frames = []
        self._read = 0
        self._changed = trio.Event()

    @property
    def messages(self):
        return [json.loads(frame) for frame in self.frames]

    def say(self, message):
        self.tell(text=json.dumps(message))

    async def message(self):
        await self._until(lambda: len(self.frames) > self._read)
        self._read += 1
        return json.loads(self.frames[self._read - 1])

    async def ask(self, message):
        self.say(message)
        return await self.message()

    async def _until(self, condition):
        with trio.fail_after(60):
            while not condition():
                await self._changed.wait()

    def _notify(self):
        self._changed.set()
        self._changed = trio.Event()


class WsClient(Conversation):
    """A client of WebSocket, in memory: what the application says, and what it is told."""

    def __init__(self):
        super().__init__()
        self.sent = []
        self._into, self._messages = trio.open_memory_channel(1000)
        self._stalled = False

    @property
    def close(self):
        """The code with which the server closed."""
        return next((m["code"] for m in self.sent if m["type"] == "websocket.close"), None)

    @property
    def status(self):
        """The HTTP status with which the server refused."""
        return next((m["status"] for m in self.sent if m["type"] == "websocket.http.response.start"), None)

    @property
    def headers(self):
        """The fields of the answer with which the server refused."""
        return next((m["headers"] for m in self.sent if m["type"] == "websocket.http.response.start"), None)

    @property
    def body(self):
        """What that answer said."""
        return next((m["body"] for m in self.sent if m["type"] == "websocket.http.response.body"), None)

    @property
    def accepted(self):
        return any(m["type"] == "websocket.accept" for m in self.sent)

    @property
    def subprotocol(self):
        """The one that the server has selected."""
        return next((m["subprotocol"] for m in self.sent if m["type"] == "websocket.accept"), None)

    async def run(self, app, scope):
        await self._into.send({"type": "websocket.connect"})
        await app(scope, self._messages.receive, self._send)
        self.sent.append({"type": "returned"})
        self._notify()

    async def _send(self, message):
        await trio.lowlevel.checkpoint()
        while self._stalled:
            await self._changed.wait()
        self.sent.append(message)
        if message["type"] == "websocket.send":
            self.frames.append(message["text"])
        self._notify()

    def stall(self):
        self._stalled = True

    def resume(self):
        self._stalled = False
        self._notify()

    def tell(self, **frame):
        self._into.send_nowait({"type": "websocket.receive", **frame})

    def disconnect(self):
        self._into.send_nowait({"type": "websocket.disconnect", "code": 1006})

    async def ended(self):
        await self._until(lambda: self.sent[-1:] == [{"type": "returned"}])
        return self


@asynccontextmanager
async def ws(app, revision=None, *, path="/mcp", subprotocols=("mcp",), extensions=True, **headers):
    """Connect over WebSocket; initialized, if a revision is given."""
    fields = {"host": "localhost", **headers}
    path, _, query = path.partition("?")
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": path,
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()],
        "subprotocols": list(subprotocols),
        "extensions": {"websocket.http.response": {}} if extensions else {},
    }
    client = WsClient()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run, app, scope)
        await client._until(lambda: client.sent)
        if revision is not None:
            result = (await client.ask(initialize(revision)))["result"]
            assert result["protocolVersion"] == revision
            client.say(INITIALIZED)
        yield client
        if client.sent[-1] != {"type": "returned"}:
            client.disconnect()
