"""A client that takes what is written to it slowly, but steadily, loses nothing, wherever its session is."""

import h2.settings
import pytest
import trio
from several import open_buses, quiet

from mcpbus import DELIVERED, Limits, ServeOptions, Server
from mcpbus.core.limits import SLICE_BYTES
from mcpbus.core.receipt import LOST
from mcpbus.protocol.principals import Peer
from mcpbus.serving.http2.connection import Http2Connection
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.served_app import ServedApp
from mcpbus.testing.over_http1 import WireReactor
from tests.serving.peers import Http2
from tests.serving.wires import Wire

WRITE_DEADLINE = 30.0
SLICES = 7


async def read_slowly(app, session, seconds, sent):
    """Read the GET stream of a session through ASGI, and take each message of the server after so many seconds."""

    async def receive():
        await trio.sleep_forever()

    async def send(message):
        await trio.sleep(seconds if len(message.get("body", b"")) > 100 else 0)
        sent.append(message)

    fields = {"host": "localhost", "accept": "text/event-stream", "mcp-session-id": session.id}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }
    await app(scope, receive, send)


@pytest.mark.parametrize("where", ["here", "over a link"])
@pytest.mark.parametrize(
    ("seconds", "fate"), [(0.9 * WRITE_DEADLINE, DELIVERED), (1.1 * WRITE_DEADLINE, LOST)]
)
async def test_a_write_has_its_deadline_for_each_slice(where, seconds, fate, autojump_clock):
    limits = Limits(write_deadline=WRITE_DEADLINE)
    async with open_buses(lambda: Server("slow"), limits=limits) as (buses, probes):
        session = await probes[0].initialize()
        here, there = [bus.asgi() for bus in buses]  # they all make the same endpoints
        app, sent = here if where == "here" else there, []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_slowly, app, session, seconds, sent)
            await quiet(buses)
            inside = buses[0].sessions[session.id]
            receipt = inside.notify("notifications/x", {"text": "x" * (SLICES - 1) * SLICE_BYTES})
            await trio.sleep(SLICES * seconds + 1)
            assert receipt.fate == fate
            ended = fate == LOST
            assert (sent[-1].get("more_body") is False) == ended, "the stream goes on"
            body = b"".join(message.get("body", b"") for message in sent)
            assert (body.count(b"x" * SLICE_BYTES) >= SLICES - 1) is not ended
            nursery.cancel_scope.cancel()


class Owner:
    """The end of the server that has accepted a connection in memory."""

    peer = Peer.at("192.0.2.1")

    def __init__(self, stream):
        self._stream = stream

    def close(self):
        self._stream.close()


async def connect_http2(app, nursery):
    """Return a client of HTTP/2 whose streams have a window of 1,000 bytes, which it opens by itself alone."""
    reactor = WireReactor()
    service = HttpServer(ServedApp(app), ServeOptions(write_deadline=WRITE_DEADLINE), reactor)
    far = Wire(reactor)
    near = far.near
    nursery.start_soon(service.run)
    nursery.start_soon(Http2Connection(service, far, Owner(far), reactor).run)
    client = await Http2(near).start()
    client.acknowledges = False
    client.connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    await client.flush()
    await client.step()
    return client


async def read_on(client):
    while True:
        await client.step()


@pytest.mark.parametrize("where", ["here", "over a link"])
@pytest.mark.parametrize(
    ("seconds", "fate"), [(0.9 * WRITE_DEADLINE, DELIVERED), (1.1 * WRITE_DEADLINE, LOST)]
)
async def test_a_client_of_http2_has_the_deadline_for_each_slice_that_it_opens_a_window_for(
    where, seconds, fate, autojump_clock
):
    limits = Limits(write_deadline=WRITE_DEADLINE)
    async with (
        open_buses(lambda: Server("slow"), limits=limits) as (buses, probes),
        trio.open_nursery() as nursery,
    ):
        session = await probes[0].initialize()
        here, there = [bus.asgi() for bus in buses]
        client = await connect_http2(here if where == "here" else there, nursery)
        head = [(":method", "GET"), (":path", "/mcp"), (":scheme", "http"), (":authority", "localhost")]
        fields = [("accept", "text/event-stream"), ("mcp-session-id", session.id)]
        stream_id = await client.request(headers=head + fields)
        nursery.start_soon(read_on, client)
        await quiet(buses)
        receipt = (
            buses[0]
            .sessions[session.id]
            .notify("notifications/x", {"text": "x" * (SLICES - 1) * SLICE_BYTES})
        )
        for _ in range(SLICES):
            await trio.sleep(seconds)
            if receipt.fate is not None:
                break
            for stream in (None, stream_id):
                client.connection.increment_flow_control_window(SLICE_BYTES, stream)
            await client.flush()
        await trio.sleep(1)
        assert receipt.fate == fate
        assert (len(client.bodies[stream_id]) > (SLICES - 1) * SLICE_BYTES) is (fate == DELIVERED)
        nursery.cancel_scope.cancel()
