"""The other end of the wire: servers on real sockets, and clients that say exactly what a test wants said."""

import json
import os
import socket
import struct
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from urllib.parse import urlsplit

import attrs
import h11
import trio

import mcpbus.serving
from mcpbus import Bus, ServeOptions
from mcpbus.testing import probe

DEADLINE = 60
"""Seconds after which a test that hangs is ended: many more than one takes on a machine that has much else to do."""
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
}


def message(method, params=None, id=None):  # noqa: A002 - the protocol's word
    """A JSON-RPC request, or a notification if it has no id."""
    body = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        body["id"] = id
    if params is not None:
        body["params"] = params
    return body


def call(tool, arguments=None, *, id, token=None):  # noqa: A002 - the protocol's word
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return message("tools/call", {"name": tool, "arguments": arguments or {}} | meta, id)


def initialize(revision=LEGACY):
    info = {"name": "wire", "version": "1"}
    return message(
        "initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}, "init"
    )


def modernized(body):
    """The same request as one of 2026-07-28, and the headers that mirror it."""
    params = body.get("params", {})
    headers = {"mcp-protocol-version": MODERN, "mcp-method": body["method"]}
    if "name" in params or "uri" in params:
        headers["mcp-name"] = params.get("name") or params["uri"]
    return body | {"params": params | {"_meta": CLAIM | params.get("_meta", {})}}, headers


@attrs.frozen
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Peer:
    """One HTTP/1.1 connection, for one exchange after the other."""

    def __init__(self, stream, url):
        self.stream = stream
        self.path = urlsplit(url).path
        self.host = urlsplit(url).netloc
        self._http = h11.Connection(h11.CLIENT)
        self._text = b""

    async def send(self, body=None, headers=(), verb="POST"):
        """Send a whole request; `body` is bytes, or what becomes JSON."""
        data = self.request(body, headers, verb)
        await self.stream.send_all(data)

    def request(self, body=None, headers=(), verb="POST"):
        """The bytes of a request."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        fields = {"host": self.host} | ACCEPT | {"content-length": str(len(content))} | dict(headers)
        kept = [(name, value) for name, value in fields.items() if value is not None]
        data = self._http.send(h11.Request(method=verb, target=self.path, headers=kept))
        if content:
            data += self._http.send(h11.Data(content))
        return data + self._http.send(h11.EndOfMessage())

    async def next(self):
        """The next h11 event."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                data = await self.stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            self._http.receive_data(data)
        return event

    async def head(self):
        """The head of the response: its status and headers."""
        event = await self.next()
        assert isinstance(event, h11.Response), event
        self._text = b""
        return event.status_code, {name.decode(): value.decode() for name, value in event.headers}

    async def response(self):
        status, headers = await self.head()
        body = b""
        while isinstance(event := await self.next(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), event
        return Response(status, headers, body)

    async def said(self):
        """The next message of an SSE response, after its head; None when it has ended."""
        while True:
            block, found, rest = self._text.partition(b"\n\n")
            if found:
                self._text = rest
                data = [line[6:] for line in block.split(b"\n") if line.startswith(b"data: ")]
                if any(data):  # what only says when to come back has none
                    return json.loads(b"\n".join(data))
                continue
            event = await self.next()
            if not isinstance(event, h11.Data):
                assert isinstance(event, h11.EndOfMessage), event
                return None
            self._text += bytes(event.data)

    def next_response(self):
        """Go on to the response of a request that was sent twice."""
        self._http.start_next_cycle()
        self._http.send(h11.Request(method="POST", target=self.path, headers={"host": self.host}.items()))
        self._http.send(h11.EndOfMessage())

    async def exchange(self, body=None, headers=(), verb="POST"):
        await self.send(body, headers, verb)
        return await self.response()

    async def modern(self, body, headers=()):
        body, mirrored = modernized(body)
        return await self.exchange(body, mirrored | dict(headers))

    async def open_session(self, revision=LEGACY):
        """Shake hands; returns the headers of the session."""
        opened = await self.exchange(initialize(revision))
        assert opened.status == 200, opened
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        assert (await self.exchange(message("notifications/initialized"), session)).status == 202
        return session

    def reset(self):
        """Close the connection so that the server sees a reset."""
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()


@attrs.define
class Served:
    """A server under test."""

    bus: Bus | None
    url: str
    _peers: list[Peer] = attrs.field(factory=list)

    async def peer(self, *, receive_buffer=None, path=None, source=None):
        """Connect, from another address of this machine if `source` is one.

        A small `receive_buffer` (bytes) makes a client that does not read slow down the server soon.
        """
        address = urlsplit(self.url)
        sock = trio.socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            if source is not None:
                await sock.bind((source, 0))
            await sock.connect((address.hostname, address.port))
        except OSError:
            sock.close()
            raise
        self._peers.append(Peer(trio.SocketStream(sock), path or self.url))
        return self._peers[-1]

    async def quiet(self, actors=0):
        """Wait until only so many actors are left."""
        while self.bus.statistics().actors > actors:
            await trio.lowlevel.checkpoint()
        return self.bus.statistics()

    def close(self):
        for peer in self._peers:
            peer.stream.socket.close()


class AsgiOnly:
    """A bus as an application that knows nothing but ASGI, and how to end."""

    def __init__(self, app):
        self._app = app
        self.path = app.path
        self.drain = app.drain

    @property
    def reached(self):
        return self._app.reached

    async def __call__(self, scope, receive, send):
        await self._app(scope, receive, send)


@asynccontextmanager
async def serving(server, *, limits=None, options=None, **http):
    """Serve `server` on a free port until the block ends, which no open request delays."""
    async with server.open(limits=limits, drain_timeout=0) as bus, trio.open_nursery() as nursery:
        deadline = bus.limits.write_deadline
        options = attrs.evolve(options or ServeOptions(write_deadline=deadline), bind="127.0.0.1:0")

        async def serve(task_status):
            app = bus.asgi(**http)
            if probe.DEFAULT_SHELL == "asgi":
                app = AsgiOnly(app)
            await mcpbus.serving.serve(app, options, task_status=task_status)

        (url,) = await nursery.start(serve)
        served = Served(bus, url + http.get("path", "/mcp"))
        try:
            # Inside of what the cancellation below ends, so that this does not hide that it took too long.
            with trio.fail_after(DEADLINE):
                yield served
        finally:
            served.close()
            nursery.cancel_scope.cancel()


def environment():
    """The environment of a subprocess that can import what this process has imported."""
    return os.environ | {"PYTHONPATH": str(Path(mcpbus.__file__).parents[1])}


@asynccontextmanager
async def program(*arguments, seconds=DEADLINE, **options):
    """Run Python with these arguments, beside this file, until the block ends, which it has to in so many seconds."""
    command = [sys.executable, *map(str, arguments)]
    pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    options = pipes | {"env": environment(), "cwd": Path(__file__).parent} | options
    async with trio.open_nursery() as nursery:
        process = await nursery.start(_start, command, options)
        try:
            with trio.fail_after(seconds):
                yield process
        finally:
            process.kill()
            nursery.cancel_scope.cancel()


async def _start(command, options, task_status):
    process = await trio.lowlevel.open_process(command, **options)
    task_status.started(process)
    with trio.CancelScope(shield=True):
        await process.wait()
