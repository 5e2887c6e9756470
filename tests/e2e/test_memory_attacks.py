"""Clients that want memory: whatever they do, the server takes little more than before, and serves everybody else meanwhile.

The server is a process of its own, so that what it takes of memory and of the processor can be told from what the attacker does.
"""

import json
import re
import socket
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
import trio
from wire import ACCEPT, CLAIM, LEGACY, MODERN, call, initialize, message, program

from tests.at_home import OWN_PROCESSES

MOST = 200 * 1024 * 1024
"""How much more than before an attack it may take, in bytes."""
PROMPT = 1.0
"""How long others may have to wait for their turns, in seconds of the processor, of which the tests of a busy machine get few."""
LONGEST = 4 * 1024 * 1024 - 1024
"""A body that is just not too long."""
TOOLS = ["long", "late"]
"""Who answers with a megabyte: at once, or one call after the other when most have begun."""

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel is not Linux"),
    OWN_PROCESSES,
]


class Memory:
    """How much memory a process takes."""

    def __init__(self, process):
        self._proc = Path("/proc") / str(process.pid)
        (self._proc / "clear_refs").write_text("5")  # forgets how much it was at most
        self._before = self._read("VmRSS")

    def _read(self, name):
        return int(re.search(rf"{name}:\s+(\d+) kB", (self._proc / "status").read_text())[1]) * 1024

    @property
    def grown(self):
        return self._read("VmHWM") - self._before


class Attacker:
    """Connections to the server that say exactly what an attack needs, and read nothing unless it does."""

    def __init__(self, port, nursery):
        self._port = port
        self._streams = []
        self._nursery = nursery

    async def connect(self):
        stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        self._streams.append(stream)
        return stream

    async def _send(self, stream, *pieces):
        """Send what the server takes; it may read no further, or close the connection."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            for piece in pieces:
                await stream.send_all(piece)

    async def each(self, number, *pieces):
        """Send the same on so many connections at once."""
        for _ in range(number):
            self.send_soon(await self.connect(), *pieces)

    def send_soon(self, stream, *pieces):
        self._nursery.start_soon(self._send, stream, *pieces)

    async def ask(self, stream, data, until=b"\r\n\r\n"):
        """Send a request, and return the beginning of its answer: its head, or more if that is not what it is read `until`."""
        await stream.send_all(data)
        head = b""
        while until not in head:
            piece = await stream.receive_some()
            assert piece, "the connection was closed"
            head += piece
        return head

    async def session(self, revision=LEGACY):
        """Open a session, and return the header that names it."""
        stream = await self.connect()
        head = await self.ask(stream, post(encoded(initialize(revision))))
        found = {"mcp-session-id": re.search(rb"mcp-session-id: (\S+)", head)[1].decode()}
        await self.ask(stream, post(encoded(message("notifications/initialized")), found))
        return found

    async def release(self, calls):
        """Have so many calls of `together` answered, once all of them wait."""
        body, headers = modern(
            "tools/call", {"name": "release", "arguments": {"calls": calls}}, name="release"
        )
        with trio.fail_after(60):
            await self.ask(await self.connect(), post(encoded(body), headers), until=b"released")

    async def aclose(self):
        for stream in self._streams:
            await trio.aclose_forcefully(stream)


def encoded(body):
    """The shortest text of a message."""
    return json.dumps(body, separators=(",", ":")).encode()


def post(body, headers=(), *, path="/mcp", length=None):
    """A POST over HTTP/1.1."""
    fields = {"host": "localhost", **ACCEPT, **dict(headers), "content-length": length or len(body)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def modern(method, params, *, name=None, capabilities=None):
    """A request of 2026-07-28, and the headers that mirror it."""
    meta = CLAIM | {"io.modelcontextprotocol/clientCapabilities": capabilities or {}}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    if name is not None:
        headers["mcp-name"] = name
    return message(method, {**params, "_meta": meta}, 1), headers


class Http2Client(h2.connection.H2Connection):
    """A client of HTTP/2 that has something to send."""

    def __init__(self):
        super().__init__(h2.config.H2Configuration(header_encoding="utf-8"))
        self.initiate_connection()

    def begin(self, headers):
        """Begin a POST, and return its stream."""
        number = self.get_next_available_stream_id()
        head = {":method": "POST", ":path": "/mcp", ":scheme": "http", ":authority": "localhost"}
        self.send_headers(number, [*head.items(), *ACCEPT.items(), *headers.items()])
        return number

    async def upload(self, stream, left):
        """Send so many bytes on each stream, as its window and that of the connection allow."""
        while left:
            sends = False
            for number in tuple(left):
                room = min(self.local_flow_control_window(number), self.max_outbound_frame_size, left[number])
                if room > 0:
                    self.send_data(number, b" " * room)
                    left[number] -= room
                    sends = True
            await stream.send_all(self.data_to_send())
            for event in () if sends else self.receive_data(await stream.receive_some()):
                if isinstance(event, h2.events.StreamReset | h2.events.StreamEnded):
                    left.pop(event.stream_id, None)


# -- long answers that nobody reads: each returns how many calls run at once --------------------------------------------


async def batches(attacker, tool):
    """A thousand short calls each; the one for events, and the other for an array."""
    found = await attacker.session("2025-03-26")
    for first, accept in ((0, ACCEPT["accept"]), (1000, "application/json")):
        calls = encoded([call(tool, id=first + n) for n in range(1000)])
        await attacker.each(1, post(calls, {**found, "accept": accept}))
    return 2 * 16  # the others begin as these are answered


async def calls_over_http(attacker, tool):
    body, headers = modern("tools/call", {"name": tool}, name=tool)
    await attacker.each(200, post(encoded(body), headers))
    return 200


async def calls_over_http2(attacker, tool):
    """Streams whose windows stay shut after the first bytes."""
    body, headers = modern("tools/call", {"name": tool}, name=tool)
    for _ in range(3):
        client = Http2Client()
        for _ in range(100):
            client.send_data(client.begin(headers), encoded(body), end_stream=True)
        await attacker.each(1, client.data_to_send())
    return 300


async def calls_over_http_sse(attacker, tool):
    stream = await attacker.connect()
    get = b"GET /sse HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
    head = await attacker.ask(stream, get)
    while b"session_id=" not in head:
        head += await stream.receive_some()
    path = re.search(rb"data: (\S+)", head)[1].decode()
    body = modern("tools/call", {"name": tool})[0]
    for first in range(0, 1000, 50):
        posts = [post(encoded({**body, "id": n}), path=path) for n in range(first, first + 50)]
        await attacker.each(1, b"".join(posts))
    return 1000


async def calls_over_a_websocket(attacker, tool):
    upgrade = (
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"sec-websocket-protocol: mcp\r\n\r\n"
    )
    body = modern("tools/call", {"name": tool})[0]
    frames = [encoded({**body, "id": n}) for n in range(1000)]
    masked = [b"\x81\xfe%b\0\0\0\0%b" % (len(frame).to_bytes(2), frame) for frame in frames]
    stream = await attacker.connect()
    await attacker.ask(stream, upgrade)
    attacker.send_soon(stream, *masked)
    return 1000


# -- what a client makes the server keep ----------------------------------------------------------------------------------


async def capabilities(attacker):
    """Sessions whose clients say much of themselves: too much, and as much as they may."""
    for size, number in ((3_000_000, 8), (60_000, 150)):
        body = initialize()
        body["params"]["capabilities"] = {"experimental": {"x": [[]] * (size // 3)}}
        await attacker.each(number, post(encoded(body)))


async def metas(attacker):
    """Requests that say much in their `_meta`."""
    body = message("ping", {"_meta": {f"k{n}": n for n in range(250_000)}}, 1)
    await attacker.each(10, post(encoded(body)))


async def listens(attacker):
    for size in (LONGEST - 1000, 8_000):
        uris = [f"res://{n:04}" + "x" * (size - 10) for n in range((LONGEST - 1000) // (size + 4))]
        body, headers = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
        await attacker.each(40, post(encoded(body), headers))


async def subscriptions(attacker):
    for size, number, sessions in ((LONGEST - 1000, 10, 1), (8_000, 500, 10)):
        bodies = [
            encoded(message("resources/subscribe", {"uri": f"res://{n:04}" + "x" * size}, n))
            for n in range(number)
        ]
        for _ in range(sessions):
            found = await attacker.session()
            await attacker.each(1, *(post(body, found) for body in bodies))


async def arguments(attacker):
    """Calls that wait with what they were given, which is a text, or hundreds of thousands of lists."""
    for data in ("x" * (LONGEST - 2000), [[]] * 200_000):
        body, headers = modern("tools/call", {"name": "wait", "arguments": {"data": data}}, name="wait")
        await attacker.each(20, post(encoded(body), headers))


async def questions(attacker):
    params = {"name": "ask", "arguments": {"question": "x" * (LONGEST - 2000)}}
    body, headers = modern("tools/call", params, name="ask", capabilities={"elicitation": {}})
    await attacker.each(40, post(encoded(body), headers))


async def bodies(attacker):
    """Bodies without their last byte."""
    await attacker.each(80, post(b" " * (LONGEST - 1), length=LONGEST))


async def short_bodies(attacker):
    """Shorter ones, that many connections of the lane may wait for in turns."""
    await attacker.each(400, post(b" " * 15_000, length=15_001))


async def bodies_over_http2(attacker):
    """A hundred of them on one connection, whose server opens their windows as it reads."""
    for _ in range(2):
        client = Http2Client()
        left = {client.begin({"content-length": str(LONGEST)}): LONGEST - 1 for _ in range(100)}
        with trio.move_on_after(2), suppress(trio.BrokenResourceError, h2.exceptions.ProtocolError):
            await client.upload(await attacker.connect(), left)


async def in_one_turn(attacker, attack):
    """Have all calls of an attack answered in one turn of the scheduler: no task of the server's has a turn in between."""
    await attacker.release(await attack(attacker, "together"))


LONG = [batches, calls_over_http, calls_over_http2, calls_over_http_sse, calls_over_a_websocket]
KEPT = [
    capabilities,
    metas,
    listens,
    subscriptions,
    arguments,
    questions,
    bodies,
    short_bodies,
    bodies_over_http2,
]
ATTACKS = [
    *(
        pytest.param(partial(attack, tool=tool), id=f"{tool}-{attack.__name__}")
        for attack in LONG
        for tool in TOOLS
    ),
    *(pytest.param(partial(in_one_turn, attack=attack), id=f"together-{attack.__name__}") for attack in LONG),
    *(pytest.param(attack, id=attack.__name__) for attack in KEPT),
]


async def check_health(port):
    """Ask for `/health` on a new connection: it must be answered, and that all is well."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


async def ask(port):
    """Check it over and over."""
    while True:
        await check_health(port)
        await trio.sleep(0.02)


async def listen(process, took):
    """Hear what the server says of itself."""
    async for data in process.stdout:
        took.extend(map(float, data.split()))


@asynccontextmanager
async def serving():
    """Have the server take its connections from a socket of ours: they wait there until it has begun."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port, number = sock.getsockname()[1], sock.fileno()
        options = {"stderr": None, "pass_fds": [number]}
        async with program("-m", "memory_app", f"fd://{number}", **options) as process:
            sock.close()
            await check_health(port)
            yield process, port


@pytest.mark.parametrize("attack", ATTACKS)
async def test_memory_has_a_bound_and_everybody_else_is_served(attack, record_property):
    took = [0.0]
    async with serving() as (process, port), trio.open_nursery() as nursery:
        memory = Memory(process)
        for background in ((listen, process, took), (ask, port)):
            nursery.start_soon(*background)
        attacker = Attacker(port, nursery)
        await attack(attacker)
        await trio.sleep(1)
        grown = memory.grown
        nursery.cancel_scope.cancel()
    await attacker.aclose()
    record_property("MiB", grown / 2**20)
    record_property("seconds", took[-1])
    assert grown < MOST
    assert took[-1] < PROMPT


async def test_a_client_over_stdio_that_does_not_read_is_not_read_further(record_property):
    async with program("-m", "memory_app", "stdio", stderr=None) as process:
        body = modern("tools/call", {"name": "long"})[0]
        await process.stdin.send_all(encoded({**body, "id": "first"}) + b"\n")
        await process.stdout.receive_some()
        memory = Memory(process)
        with trio.move_on_after(1):
            await process.stdin.send_all(b"".join(encoded({**body, "id": n}) + b"\n" for n in range(3000)))
        grown = memory.grown
    record_property("MiB", grown / 2**20)
    assert grown < MOST
