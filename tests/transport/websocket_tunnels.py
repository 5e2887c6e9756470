"""A client of WebSocket over a stream of HTTP/2 in memory, on the h2 library; it can what `websocket_wires.WireClient` can."""

from contextlib import asynccontextmanager, suppress

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import trio
from channels import INITIALIZED, initialize
from lanes import Owner
from peers import Http2
from rfc6455 import split
from websocket_wires import WireClient
from wires import Unwatched, Wire

from mcpbus.serving import ServeOptions, ServerCounters
from mcpbus.serving.http2.connection import Http2Connection
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.served_app import ServedApp
from mcpbus.testing.over_http1 import WireReactor


class TunnelClient(WireClient):
    """One stream of one connection.

    Attributes:
        reset: The code with which the server has reset the stream.
        others: What has come of other streams, and of the connection.
    """

    def __init__(self, wire):
        super().__init__(wire)
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self._peer = Http2(wire.near)
        self._peer.connection = self.connection
        self.connection.initiate_connection()
        self.reset = None
        self.stream_id = None
        self.others = []
        self._unsaid = b""
        self._received = b""
        self._flush()

    async def listen(self):
        """Take what the server says."""
        while True:
            try:
                received = await self.wire.near.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                received = b""
            if not received:
                break
            for event in self._peer._read(received):
                if getattr(event, "stream_id", None) == self.stream_id:
                    self._hear(event)
                else:
                    self.others.append(event)
            self._say()
            self._notify()
        self.over.set()
        self._notify()

    def _hear(self, event):
        match event:
            case h2.events.ResponseReceived(headers=headers):
                fields = dict(headers)
                status = int(fields[b":status"])
                self.headers = headers
                self.accepted = status == 200
                self.status = None if self.accepted else status
                self.subprotocol = fields.get(b"sec-websocket-protocol", b"").decode() or None
            case h2.events.DataReceived(data=data):
                self._received += data
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if self.accepted:
                    found, self._received = split(self._received)
                    for opcode, payload in found:
                        self._take(opcode, payload)
                else:
                    self.body = self._received
            case h2.events.StreamEnded():
                self.over.set()
            case h2.events.StreamReset(error_code=code):
                self.reset = code
                self.over.set()

    def connect(self, *fields, path="/mcp", protocol="websocket", version="13", end=False):
        """Ask for a WebSocket."""
        head = [
            (":method", "CONNECT"),
            (":protocol", protocol),
            (":scheme", "http"),
            (":path", path),
            *fields,
            *([("sec-websocket-version", version)] if version is not None else []),
        ]
        self.stream_id = self.connection.get_next_available_stream_id()
        self.connection.send_headers(self.stream_id, head, end_stream=end)
        self._flush()

    def send_bytes(self, data):
        self._unsaid += data
        self._say()

    def _say(self):
        connection = self.connection
        while self._unsaid and not self.over.is_set():
            room = connection.local_flow_control_window(self.stream_id)
            piece = self._unsaid[: min(room, connection.max_outbound_frame_size)]
            if not piece:
                break
            self._unsaid = self._unsaid[len(piece) :]
            with suppress(h2.exceptions.StreamClosedError):  # its end has come with what this answers
                connection.send_data(self.stream_id, piece)
        self._flush()

    def _flush(self):
        self.wire.put(self.connection.data_to_send())

    def stall(self):
        self.connection.update_settings({4: 0})  # INITIAL_WINDOW_SIZE, of streams that are there, too
        self.connection.acknowledge_received_data = lambda *_: None
        self._flush()

    def resume(self):
        del self.connection.acknowledge_received_data
        self.connection.update_settings({4: 65_535})
        self._flush()

    async def disconnect(self):
        self.connection.end_stream(self.stream_id)
        self._flush()
        await trio.lowlevel.checkpoint()

    def abort(self):
        """Leave as a connection does that is cut off."""
        self.connection.reset_stream(self.stream_id, h2.errors.ErrorCodes.CANCEL)
        self._flush()
        self.over.set()


class _Acceptor(Owner):
    """Who accepted the connection."""

    def blame(self, fault):
        raise fault


class _Over:
    def __init__(self):
        self.over = trio.Event()


@asynccontextmanager
async def open_tunnel(app, *, turns=True, **options):
    """Connect to an application, and ask for nothing yet."""
    # Unless a test says otherwise, it is the bus that gives up who takes nothing.
    options.setdefault("write_deadline", 3600)
    counters = ServerCounters()
    reactor = WireReactor()
    service = HttpServer(ServedApp(app), ServeOptions(**options), reactor, counters)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        wire = Wire(reactor)
        client = TunnelClient(wire)
        client.counters = counters
        owner = _Acceptor(_Over(), wire, nursery)
        client.server = Http2Connection(service, wire, owner, reactor)
        if not turns:
            client.server._readiness = Unwatched(service, wire, reactor)
        nursery.start_soon(client.server.run)
        nursery.start_soon(client.listen)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(2 * 3600):
            yield client
        if client.stream_id is not None and not client.over.is_set():
            client.abort()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def tunnel_ws(
    app, revision=None, *, turns=True, path="/mcp", subprotocols=("mcp",), options=None, **headers
):
    """Connect over WebSocket; initialized, if a revision is given."""
    fields = {":authority": headers.pop("host", "localhost"), **headers}
    if subprotocols:
        fields["sec-websocket-protocol"] = ", ".join(subprotocols)
    async with open_tunnel(app, turns=turns, **(options or {})) as client:
        client.connect(*fields.items(), path=path)
        await client.answered()
        if revision is not None:
            result = (await client.ask(initialize(revision)))["result"]
            assert result["protocolVersion"] == revision
            client.say(INITIALIZED)
        yield client
