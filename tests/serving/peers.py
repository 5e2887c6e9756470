"""The other side of the wire: clients that say exactly what a test wants said, and small applications to talk to."""

import socket as stdlib_socket
from collections import defaultdict
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.errors
import h2.events
import trio

from mcpbus.serving import ServeOptions, serve


class Served:
    """A server under test."""

    def __init__(self, url, shutdown, ended):
        self.url = url
        self.shutdown = shutdown
        self.ended = ended
        self.streams = []

    async def connect(self, *, receive_buffer=None):
        address = urlsplit(self.url)
        sock = trio.socket.socket()
        self.streams.append(trio.SocketStream(sock))
        if receive_buffer is not None:
            sock.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_RCVBUF, receive_buffer)
        await sock.connect((address.hostname, address.port))
        return self.streams[-1]


@asynccontextmanager
async def serving(app, *, counters=None, **options):
    """Serve `app` on a free port until the block ends."""
    shutdown, ended = trio.Event(), trio.Event()

    async def run(task_status):
        try:
            await serve(
                app,
                ServeOptions(bind="127.0.0.1:0", **options),
                shutdown=shutdown,
                counters=counters,
                task_status=task_status,
            )
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        with trio.fail_after(60):
            (url,) = await nursery.start(run)
            served = Served(url, shutdown, ended)
            try:
                yield served
            finally:
                for stream in served.streams:
                    stream.socket.close()
        nursery.cancel_scope.cancel()


def head_of(method="GET", path="/", *more):
    """The fields of an HTTP/2 request."""
    return [(":method", method), (":path", path), (":scheme", "http"), (":authority", "test"), *more]


async def until(condition):
    """Wait until something is so, for which the server needs some rounds of the scheduler."""
    while not condition():  # noqa: ASYNC110 - nothing tells of it
        await trio.sleep(0.001)


async def receive_until(stream, end):
    """What arrives up to and including `end`."""
    data = b""
    while end not in data:
        chunk = await stream.receive_some()
        assert chunk, f"the connection ended after {data!r}"
        data += chunk
    return data


async def receive_all(stream):
    """What arrives until the server closes, or resets."""
    data = b""
    try:
        while chunk := await stream.receive_some():
            data += chunk
    except trio.BrokenResourceError:
        pass
    return data


async def get(stream, path="/"):
    """One HTTP/1.1 exchange on a connection that stays open; the response must be chunked."""
    await stream.send_all(f"GET {path} HTTP/1.1\r\nhost: test\r\n\r\n".encode())
    return await receive_until(stream, b"0\r\n\r\n")


class Http2:
    """An HTTP/2 client with prior knowledge, on the h2 library."""

    def __init__(self, stream, *, lenient=False):
        self.stream = stream
        self.connection = h2.connection.H2Connection(
            config=h2.config.H2Configuration(
                header_encoding="utf-8",
                validate_outbound_headers=not lenient,
                normalize_outbound_headers=not lenient,
            )
        )
        self._received = b""
        self.acknowledges = True  # the response's data, so that the windows stay open
        self.events = defaultdict(list)
        self.bodies = defaultdict(bytes)

    async def start(self):
        self.connection.initiate_connection()
        await self.flush()
        await self.until(lambda event: isinstance(event, h2.events.RemoteSettingsChanged))
        return self

    async def flush(self):
        await self.stream.send_all(self.connection.data_to_send())

    async def request(self, method="GET", path="/", *, end=True, headers=None):
        stream_id = self.connection.get_next_available_stream_id()
        head = headers or head_of(method, path)
        self.connection.send_headers(stream_id, head, end_stream=end)
        await self.flush()
        return stream_id

    async def send_frames(self, *frames):
        """Send frames that the h2 library would not."""
        await self.stream.send_all(b"".join(frame.serialize() for frame in frames))

    async def send_data(self, stream_id, data, *, end=False):
        """Send within the flow control windows, waiting for them to open."""
        while data:
            room = min(
                self.connection.local_flow_control_window(stream_id),
                self.connection.max_outbound_frame_size,
                len(data),
            )
            if room == 0:
                await self.step()
                continue
            self.connection.send_data(stream_id, data[:room], end_stream=end and room == len(data))
            data = data[room:]
            await self.flush()

    async def step(self):
        """Take what arrives next; returns its events."""
        data = await self.stream.receive_some()
        assert data, "the server closed the connection"
        events = self._read(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] += event.data
                if event.flow_controlled_length and self.acknowledges:
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.events[getattr(event, "stream_id", None)].append(event)
        await self.flush()
        return events

    def _read(self, data):
        """Read frames; the h2 library would read nothing more after a GOAWAY, though streams may go on (RFC 9113, section 6.8)."""
        self._received += data
        events = []
        while len(self._received) >= 9:
            size = 9 + int.from_bytes(self._received[:3], "big")
            if len(self._received) < size:
                break
            frame, self._received = self._received[:size], self._received[size:]
            if frame[3] == 7 and not any(frame[13:17]):
                events.append(h2.events.ConnectionTerminated())
                events[-1].error_code = h2.errors.ErrorCodes.NO_ERROR
                events[-1].last_stream_id = int.from_bytes(frame[9:13], "big")
            else:
                events += self.connection.receive_data(frame)
        return events

    async def until(self, wanted):
        """Go on until an event is the wanted one; it may have come before."""
        while True:
            for events in self.events.values():
                for event in events:
                    if wanted(event):
                        return event
            await self.step()

    async def until_stream(self, stream_id, *types):
        """Go on until the stream has seen an event of one of these types."""
        return await self.until(
            lambda event: isinstance(event, types) and getattr(event, "stream_id", None) == stream_id
        )

    def status(self, stream_id):
        (head,) = [event for event in self.events[stream_id] if isinstance(event, h2.events.ResponseReceived)]
        return dict(head.headers)[":status"]


async def respond(send, body=b"ok", status=200):
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def hello(scope, receive, send):
    """Answers at once, without a look at the body."""
    assert scope["type"] == "http"
    await respond(send)
