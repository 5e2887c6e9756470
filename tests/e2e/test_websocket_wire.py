"""WebSocket on real sockets: the client is wsproto, which is not ours."""

import json
import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

from mcpbus import Context, ServeOptions, Server
from tests.at_home import OWN_WAY

pytestmark = OWN_WAY

CERTIFICATE = str(Path(__file__).parents[1] / "serving" / "localhost.pem")

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "wire", "version": "1"}}


def message(method, params=None, id=None):  # noqa: A002 - the protocol's word
    body = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return body if id is None else {**body, "id": id}


def call(tool, id, **arguments):  # noqa: A002 - the protocol's word
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}}
    return message("tools/call", params, id)


def make_server(ended):
    server = Server("wire")

    @server.tool
    async def count(ctx: Context, steps: int) -> str:
        for step in range(steps):
            await ctx.progress(step + 1)
        return "counted"

    @server.tool
    async def hang(ctx: Context) -> None:
        await ctx.progress(1)
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


class Http1:
    """A WebSocket on an HTTP/1.1 connection."""

    def __init__(self, stream):
        self.stream = stream
        self.events = []
        self._ws = WSConnection(ConnectionType.CLIENT)

    async def open(self, port, subprotocols, headers):
        host = f"127.0.0.1:{port}"
        extensions = [PerMessageDeflate()]
        request = Request(
            host=host,
            target="/mcp",
            subprotocols=list(subprotocols),
            extra_headers=list(headers),
            extensions=extensions,
        )
        await self.send(request)
        return await self.event()

    async def send(self, event):
        await self.stream.send_all(self._ws.send(event))

    async def event(self):
        """The next event; None at the end of the connection."""
        while not self.events:
            data = await self.stream.receive_some()
            if not data:
                return None
            self._ws.receive_data(data)
            self.events += self._ws.events()
        return self.events.pop(0)


class Client:
    """What any of them has, one level up."""

    def __init__(self, carrier):
        self.carrier = carrier
        self.pings = 0
        self.frames = []
        self._text = ""

    async def say(self, body):
        await self.carrier.send(TextMessage(data=json.dumps(body)))

    async def next(self):
        """The next message, or the close frame; None at the end of the connection."""
        while True:
            event = await self.carrier.event()
            match event:
                case TextMessage():
                    self._text += event.data
                    if event.message_finished:
                        text, self._text = self._text, ""
                        return json.loads(text)
                case Ping():
                    self.pings += 1
                    await self.carrier.send(event.response())
                case CloseConnection() | None:
                    return event

    async def send_all(self, events):
        for event in events:
            await self.carrier.send(event)

    async def ask(self, body):
        await self.say(body)
        return await self.next()

    async def initialize(self):
        assert (await self.ask(message("initialize", HELLO, 0)))["result"]
        await self.say(message("notifications/initialized"))


class Served:
    def __init__(self, bus, port, ended, shutdown, stopped):
        self.bus = bus
        self.port = port
        self.ended = ended
        self.shutdown = shutdown
        self.stopped = stopped

    async def nothing_left(self):
        while self.bus.statistics().actors:
            await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def connect(self, carrier, *, subprotocols=("mcp",), headers=(), accepted=True, tls=None):
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as below:
            stream = below
            if tls is not None:
                stream = trio.SSLStream(below, tls, server_hostname="localhost", https_compatible=True)
            client = Client(carrier(stream))
            client.answer = await client.carrier.open(self.port, subprotocols, headers)
            if accepted:
                assert isinstance(client.answer, AcceptConnection)
                assert client.answer.subprotocol == ("mcp" if subprotocols else None)
            yield client


@asynccontextmanager
async def served(http=None, limits=None, **options):
    ended, shutdown, stopped = trio.Event(), trio.Event(), trio.Event()
    with trio.fail_after(60):
        async with (
            make_server(ended).open(limits=limits, drain_timeout=0) as bus,
            trio.open_nursery() as nursery,
        ):

            async def serve(task_status):
                await bus.serve(
                    bind="127.0.0.1:0",
                    options=ServeOptions(**options),
                    shutdown=shutdown,
                    task_status=task_status,
                    **(http or {}),
                )
                stopped.set()

            (url,) = await nursery.start(serve)
            yield Served(bus, int(url.split(":")[2].split("/")[0]), ended, shutdown, stopped)
            nursery.cancel_scope.cancel()


over = pytest.mark.parametrize("carrier", [Http1])


@over
async def test_a_session_from_handshake_to_close(carrier):
    async with served() as server, server.connect(carrier) as client:
        await client.initialize()
        await client.say(call("count", 1, steps=3))
        said = [await client.next() for _ in range(4)]
        assert [m["params"]["progress"] for m in said[:3]] == [1, 2, 3]
        assert said[3]["id"] == 1
        assert len(server.bus.sessions) == 1
        await client.carrier.send(CloseConnection(code=1000))
        end = await client.next()
        assert isinstance(end, CloseConnection)
        assert end.code == 1000
        await server.nothing_left()


@over
async def test_a_client_without_a_subprotocol_is_served(carrier):
    async with served() as server, server.connect(carrier, subprotocols=()) as client:
        await client.initialize()
        assert (await client.ask(call("count", 1, steps=0)))["id"] == 1


@over
async def test_a_dropped_connection_cancels_what_runs(carrier):
    async with served() as server:
        async with server.connect(carrier) as client:
            await client.initialize()
            await client.ask(call("hang", 1))
        await server.ended.wait()
        await server.nothing_left()
        assert server.bus.statistics().sessions == 0


@over
async def test_long_messages_pass_both_ways(carrier):
    text = "äb" * 400_000
    async with served() as server, server.connect(carrier) as client:
        await client.initialize()
        answer = await client.ask(call("echo", 1, text=text))
        assert answer["result"]["content"][0]["text"] == text


@over
async def test_pings_keep_the_connection_alive(carrier):
    async with (
        served(websocket_ping_interval=0.02) as server,
        server.connect(carrier) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.next)
        while client.pings < 3:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


@over
@pytest.mark.parametrize(
    ("given", "status"),
    [({"headers": [(b"origin", b"https://evil.example")]}, 403), ({"subprotocols": ("graphql-ws",)}, 400)],
)
async def test_a_refusal_is_an_http_answer(carrier, given, status):
    async with served() as server, server.connect(carrier, accepted=False, **given) as client:
        assert isinstance(client.answer, RejectConnection)
        assert client.answer.status_code == status
        if carrier is Http1:
            data = await client.carrier.event()
            assert isinstance(data, RejectData)
            assert json.loads(data.data)["error"]["code"] == -32600
        assert server.bus.statistics().actors == 0


@over
async def test_a_binary_frame_is_refused_with_its_code(carrier):
    async with served() as server, server.connect(carrier) as client:
        await client.carrier.send(BytesMessage(data=b"{}"))
        assert (await client.next()).code == 1003


@over
async def test_a_message_that_is_too_long_is_refused_with_its_code(carrier):
    async with served(http={"max_body_bytes": 1000}) as server, server.connect(carrier) as client:
        await client.say(call("echo", 1, text="x" * 1000))
        assert (await client.next()).code == 1009


async def test_over_tls_a_session_is_the_same():
    tls = ssl.create_default_context(cafile=CERTIFICATE)
    async with (
        served(certfile=CERTIFICATE, keyfile=CERTIFICATE) as server,
        server.connect(Http1, tls=tls) as client,
    ):
        await client.initialize()
        text = "äb" * 400_000
        assert (await client.ask(call("echo", 1, text=text)))["result"]["content"][0]["text"] == text
        assert (await client.ask(call("hang", 2)))["method"] == "notifications/progress"
        await client.say(message("ping", id=3))
        assert (await client.next())["id"] == 3
        await client.carrier.send(CloseConnection(code=1000))
        assert (await client.next()).code == 1000
        await server.ended.wait()
        await server.nothing_left()


async def test_a_message_that_never_ends_ends_the_connection():
    """The limit of a message holds before it is complete."""
    async with served() as server, server.connect(Http1) as client:
        pieces = [TextMessage(data=" " * 1_000_000, message_finished=False)] * 100
        with pytest.raises(trio.BrokenResourceError):
            await client.send_all(pieces)
        await server.nothing_left()


@over
async def test_a_shutdown_says_that_the_server_goes_away_and_waits_no_longer_than_it_may(carrier):
    async with served(drain_timeout=0.1) as server, server.connect(carrier) as client:
        await client.initialize()
        await client.ask(call("hang", 1))
        server.shutdown.set()
        while isinstance(end := await client.next(), dict):
            pass
        assert end.code == 1001
        await client.carrier.send(end.response())
        assert await client.next() is None
        await server.stopped.wait()


@over
async def test_an_idle_connection_does_not_delay_a_shutdown(carrier):
    async with served(drain_timeout=3600) as server, server.connect(carrier) as client:
        await client.initialize()
        server.shutdown.set()
        end = await client.next()
        assert end.code == 1001
        await client.carrier.send(end.response())
        assert await client.next() is None
        await server.stopped.wait()
