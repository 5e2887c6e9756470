"""A client of WebSocket over a connection of the HTTP/1.1 lane in memory, down to the frames; it can what `channels.WsClient` can."""

import base64
from contextlib import asynccontextmanager

import trio
from channels import INITIALIZED, Conversation, initialize
from lanes import Owner, open_lane
from rfc6455 import BINARY, CLOSE, PING, PONG, TEXT, frame, split
from wires import Unwatched, Wire

from mcpbus.serving.http1.connection import Http1Connection

KEY = base64.b64encode(bytes(range(16)))


class WireClient(Conversation):
    """One connection.

    Attributes:
        wire: The server's end.
        status: The HTTP status with which the server refused; None if it did not.
        subprotocol: The one that it has selected.
        headers: The fields of its answer.
        body: What else it has answered, if it refused.
        frames: The texts that it has sent.
        close: The code with which it has closed.
        pings: How many pings it has sent.
        over: Set when it has closed the connection.
        answers: Whether its pings and its close are answered.
    """

    def __init__(self, wire):
        super().__init__()
        self.wire = wire
        self.accepted = False
        self.status = self.subprotocol = self.close = None
        self.headers, self.body = [], b""
        self.pings = 0
        self.over = trio.Event()
        self.answers = True

    async def listen(self):
        """Take what the server says."""
        data, head = b"", None
        while True:
            try:
                received = await self.wire.near.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                received = b""
            if not received:
                break
            data += received
            if head is None and b"\r\n\r\n" in data:
                head, _, data = data.partition(b"\r\n\r\n")
                self._read_head(head)
            if head is not None and self.accepted:
                found, data = split(data)
                for opcode, payload in found:
                    self._take(opcode, payload)
            self._notify()
        self.body = data
        self.over.set()
        self._notify()

    def _read_head(self, head):
        line, *fields = head.split(b"\r\n")
        self.headers = [
            (name.lower(), value) for name, _, value in (field.partition(b": ") for field in fields)
        ]
        status = int(line.split()[1])
        if status == 101:
            fields = dict(self.headers)
            self.accepted = True
            self.subprotocol = fields.get(b"sec-websocket-protocol", b"").decode() or None
        else:
            self.status = status

    def _take(self, opcode, payload):
        if opcode == TEXT:
            self.frames.append(payload.decode())
        elif opcode == PING:
            self.pings += 1
            if self.answers:
                self.send(PONG, payload)
        elif opcode == CLOSE:
            self.close = int.from_bytes(payload[:2], "big")
            if self.answers:
                self.send(CLOSE, payload)

    def send(self, opcode, payload=b"", **how):
        """Send a frame."""
        self.send_bytes(frame(opcode, payload, **how))

    def send_bytes(self, data):
        """Send bytes, whatever they are."""
        self.wire.put(data)

    def stall(self):
        self.wire.room = 0

    def resume(self):
        self.wire.make_room()

    def tell(self, **said):
        text = said.get("text")
        if text is None:
            self.send(BINARY, said["bytes"])
        else:
            self.send(TEXT, text.encode())

    async def disconnect(self):
        """Leave without a word."""
        await self.wire.near.aclose()

    async def ended(self):
        with trio.fail_after(60):
            await self.over.wait()
        return self

    async def answered(self):
        """Wait for the answer to the request to upgrade."""
        await self._until(lambda: self.accepted or self.over.is_set())
        return self

    async def has_more_than(self, count):
        """Wait until it has sent more messages than so many, or has closed the connection."""
        while len(self.frames) <= count and not self.over.is_set():
            await self._changed.wait()


class _Over:
    """What a connection is to whoever accepts it, as far as its tests ask."""

    def __init__(self):
        self.over = trio.Event()
        self.rest = None


def upgrade(*lines, path="/mcp", version=b"13", key=KEY):
    """A request to upgrade."""
    fields = [
        f"GET {path} HTTP/1.1".encode(),
        b"connection: keep-alive, Upgrade",
        b"upgrade: websocket",
        *([b"sec-websocket-version: " + version] if version is not None else []),
        *([b"sec-websocket-key: " + key] if key is not None else []),
        *lines,
    ]
    return b"\r\n".join([*fields, b"", b""])


class _ReadByTask(Http1Connection):
    """A connection that cannot be polled once it is a WebSocket."""

    def hand_to(self, speaker):
        super().hand_to(speaker)
        self.readiness = Unwatched(self.service, self.wire.stream, self.reactor)


@asynccontextmanager
async def open_wire(app, *, turns, **options):
    """Connect to an application, and say nothing yet.

    Args:
        app: The application.
        turns: Whether the connection can be polled once it is a WebSocket; if not, a task reads it.
        options: How it is served.
    """
    async with open_lane(app=app, **options) as house, trio.open_nursery() as nursery:
        wire = Wire(house.lane.reactor)
        client = WireClient(wire)
        client.owner = _Over()
        owner = Owner(client.owner, wire, nursery)
        kind = Http1Connection if turns else _ReadByTask
        connection = kind(house.lane, wire, owner, house.lane.reactor)
        connection.begin()
        nursery.start_soon(client.listen)
        client.connection = connection
        yield client
        if not client.over.is_set():
            await client.disconnect()
        nursery.cancel_scope.deadline = trio.current_time() + 120


@asynccontextmanager
async def wire_ws(app, revision=None, *, turns, path="/mcp", subprotocols=("mcp",), options=None, **headers):
    """Connect over WebSocket; initialized, if a revision is given."""
    fields = {"host": "localhost", **headers}
    if subprotocols:
        fields["sec-websocket-protocol"] = ", ".join(subprotocols)
    lines = [f"{name}: {value}".encode("latin-1") for name, value in fields.items()]
    async with open_wire(app, turns=turns, **(options or {})) as client:
        client.send_bytes(upgrade(*lines, path=path))
        await client.answered()
        if revision is not None:
            result = (await client.ask(initialize(revision)))["result"]
            assert result["protocolVersion"] == revision
            client.say(INITIALIZED)
        yield client
