"""A lane in memory: an endpoint that does what its path says, and clients that say exactly what a test wants said."""

import math
from contextlib import asynccontextmanager

import trio
import trio.testing
from wires import Wire

from mcpbus import Limits
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.principals import Peer
from mcpbus.serving import ServeOptions
from mcpbus.serving.http1.connection import Http1Connection
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.served_app import ServedApp
from mcpbus.testing.over_http1 import WireReactor

LIMIT = 1000


def post(body=b"", *lines, path="/echo", version="1.1", verb="POST"):
    fields = [b"host: localhost", *lines]
    if body is not None:
        fields.append(b"content-length: %d" % len(body))
    return b"\r\n".join([f"{verb} {path} HTTP/{version}".encode(), *fields, b"", body or b""])


def get(path="/", *lines, version="1.1"):
    return post(None, *lines, path=path, version=version, verb="GET")


class Endpoint:
    """Serves requests by their paths, and remembers them."""

    def __init__(self):
        self.heads = []
        self.bodies = []
        self.gone = []
        self.left = trio.Event()
        self.waiting = trio.Event()
        self.go_on = trio.Event()

    def direct(self, path):
        return None if path.startswith("/elsewhere") else self

    websockets = None
    limits = Limits()
    max_body_bytes = LIMIT
    budget = MemoryBudget(math.inf, LimitMonitor())

    def is_head_valid(self, head):
        return _name(head) == "echo"

    def respond(self, head, body, sink, *, cleared=False):
        self.heads.append(head)
        if body is not None and hasattr(self, f"respond_{_name(head)}"):
            return getattr(self, f"respond_{_name(head)}")(body)
        sink.respond_in_task(getattr(self, _name(head)))
        return None

    def respond_root(self, body):
        return HttpResponse(200, [(b"content-length", b"4")], b"root")

    def respond_echo(self, body):
        if len(body) > LIMIT:
            self.bodies.append(None)
            return HttpResponse(413, [], b"too long")
        self.bodies.append(body)
        return HttpResponse(200, [(b"content-type", b"text/plain")], body)

    def respond_empty(self, body):
        return HttpResponse(204)

    def respond_fail(self, body):
        raise RuntimeError("a mistake of the application's")

    def record_response(self, answer):
        return None

    def record(self, answer, fate):
        pass

    def cors_headers(self, head):
        return [(b"vary", b"Origin")] if head.headers.get(b"origin") else []

    async def root(self, http):
        await http.answer(HttpResponse(200, [(b"content-length", b"4")], b"root"))

    async def echo(self, http):
        try:
            body = await http.read_body(LIMIT)
        except ServerOverloaded:
            await http.answer(HttpResponse(503))
            return
        self.bodies.append(body)
        if body is None:
            await http.answer(HttpResponse(413, [], b"too long"))
        else:
            await http.answer(HttpResponse(200, [(b"content-type", b"text/plain")], body))

    async def empty(self, http):
        await http.answer(HttpResponse(204))

    async def silent(self, http):
        pass

    async def fail(self, http):
        raise RuntimeError("a mistake of the application's")

    async def fail_later(self, http):
        await http.start_stream([])
        await http.write(b"half", more=True)
        raise RuntimeError("a mistake of the application's")

    async def stream(self, http):
        """Says something at once, and something else when it is told, unless its client goes away before."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, http, nursery.cancel_scope)
            await http.start_stream([(b"content-type", b"text/event-stream")])
            await http.write(b"first", more=True)
            self.waiting.set()
            await self.go_on.wait()
            await http.write(b"last", more=False)
            nursery.cancel_scope.cancel()

    async def wait(self, http):
        """Answers when it is told, unless its client goes away before."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, http, nursery.cancel_scope)
            self.waiting.set()
            await self.go_on.wait()
            await http.answer(HttpResponse(200, [], b"waited"))
            nursery.cancel_scope.cancel()

    async def _watch(self, http, scope):
        await http.disconnected()
        self.gone.append(http.head.path)
        self.left.set()
        scope.cancel()


def _name(head):
    return head.path.strip("/") or "root"


class Client:
    """One connection."""

    def __init__(self, stream):
        self.stream = stream
        self.data = b""
        self.over = trio.Event()
        self.rest = None
        self.connection = None

    async def say(self, data):
        await self.stream.send_all(data)

    async def _more(self):
        data = await self.stream.receive_some()
        assert data, f"the connection ended after {self.data!r}"
        self.data += data

    async def until(self, end):
        while end not in self.data:
            await self._more()
        found, _, self.data = self.data.partition(end)
        return found

    async def exactly(self, size):
        while len(self.data) < size:
            await self._more()
        found, self.data = self.data[:size], self.data[size:]
        return found

    async def head(self):
        line, *lines = (await self.until(b"\r\n\r\n")).decode().split("\r\n")
        return int(line.split()[1]), dict(line.lower().split(": ", 1) for line in lines)

    async def answer(self, *, bodiless=False):
        status, fields = await self.head()
        if bodiless or status in {100, 204}:
            return status, fields, b""
        if fields.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.until(b"\r\n"), 16):
                body += await self.exactly(size)
                assert await self.exactly(2) == b"\r\n"
            assert await self.exactly(2) == b"\r\n"
            return status, fields, body
        if "content-length" in fields:
            return status, fields, await self.exactly(int(fields["content-length"]))
        return status, fields, await self.all()

    async def all(self):
        """What comes until the server closes the connection."""
        while data := await self.stream.receive_some():
            self.data += data
        found, self.data = self.data, b""
        return found

    async def ended(self):
        """Wait until the server has closed the connection, having said nothing more."""
        assert await self.all() == b""

    async def leave(self):
        await self.stream.aclose()


async def drip(client, data, *, step=1, seconds=1):
    """Say it piece by piece, as far as it is listened to."""
    for n in range(0, len(data), step):
        try:
            await client.say(data[n : n + step])
        except trio.BrokenResourceError:
            return
        await trio.sleep(seconds)
        await trio.testing.wait_all_tasks_blocked()


class House:
    """A lane, and who is connected to it."""

    def __init__(self, lane, endpoint, nursery):
        self.lane = lane
        self.endpoint = endpoint
        self._nursery = nursery

    async def connect(self):
        far = Wire(self.lane.reactor)
        client = Client(far.near)
        client.wire = far
        client.owner = Owner(client, far, self._nursery)
        client.connection = Http1Connection(self.lane, far, client.owner, self.lane.reactor)
        client.connection.begin()
        await trio.testing.wait_all_tasks_blocked()
        return client


class Owner:
    """Who accepted a connection in memory."""

    peer = Peer.at("127.0.0.1")

    def __init__(self, client, stream, nursery):
        self._client = client
        self._stream = stream
        self._nursery = nursery

    def start_soon(self, function, *args):
        self._nursery.start_soon(function, *args)

    def close(self):
        self._stream.close()
        self._client.over.set()

    async def serve_http2(self, data):
        self._client.rest = data
        self.close()


@asynccontextmanager
async def open_lane(*, app=None, limits=None, **options):
    """Open a lane, whose connections are in memory."""
    endpoint = Endpoint() if app is None else app
    if limits is not None:
        endpoint.limits = limits
    lane = HttpServer(ServedApp(endpoint), ServeOptions(**options), WireReactor())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.run)
        with trio.fail_after(2 * 3600):
            yield House(lane, endpoint, nursery)
        nursery.cancel_scope.cancel()
