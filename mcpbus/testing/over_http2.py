"""Exchanges with mcpbus's own HTTP/2 server: requests travel as frames, over connections in memory that are kept open."""

import math
from typing import Any
from urllib.parse import quote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import trio

from mcpbus.protocol.principals import Peer
from mcpbus.serving.asgi import DirectApp
from mcpbus.serving.http2.connection import Http2Connection
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.options import ServeOptions
from mcpbus.testing.over_http1 import StrictApp, WireReactor
from mcpbus.testing.recording import Recording, SentRequest

_LARGEST_WINDOW = 2**30


class OverHttp2:
    """Sends each request on a connection that is free, or a new one.

    Args:
        app: `Bus.asgi()`, or another application that is served without ASGI.
        nursery: Where the server's side runs; what the application raises, is raised there.
    """

    def __init__(self, app: DirectApp, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        # A test says itself what comes too late.
        self._reactor = WireReactor()
        options = ServeOptions(keep_alive_timeout=math.inf)
        self._service = HttpServer(StrictApp(app, nursery), options, self._reactor)
        self._free: list[_Http2Wire] = []
        nursery.start_soon(self._service.run)

    def send(self, sent: SentRequest, recording: Recording) -> None:
        """Begin an exchange."""
        wire = self._free.pop() if self._free else self._connect()
        wire.send(sent, recording)

    def _connect(self) -> "_Http2Wire":
        wire = _Http2Wire(self._free, self._reactor, self._service.options.write_deadline)
        self._nursery.start_soon(Http2Connection(self._service, wire, wire, self._reactor).run)
        return wire


class _Http2Wire(trio.abc.Stream):
    """The server's end of a connection; the client's end writes into the recording of the exchange that goes on.

    It is its own `Http2ConnectionOwner`, too.

    Args:
        free: Where the connection is put while no exchange goes on.
        reactor: Waits for it.
        seconds: How long a client has to accept something.
    """

    peer = Peer.at("127.0.0.1")

    def __init__(self, free: "list[_Http2Wire]", reactor: WireReactor, seconds: float) -> None:
        self._free = free
        self._reactor = reactor
        self._seconds = seconds
        self._pending = b""
        self._client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self._client.initiate_connection()
        self._client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _LARGEST_WINDOW})
        self._client.increment_flow_control_window(_LARGEST_WINDOW)
        self._stream_id = 0
        self._ends = True
        self._unsaid = memoryview(b"")
        self._recording: Recording | None = None
        self._left = False
        self._closed = False

    # -- the client's side -----------------------------------------------------------------------

    def send(self, sent: SentRequest, recording: Recording) -> None:
        """Begin an exchange."""
        target = quote(sent.path, safe="/~!$&'()*+,;=:@%")
        authority = [value for name, value in sent.fields if name == b"host"]
        head = [
            (b":method", sent.verb.encode()),
            (b":scheme", b"http"),
            (b":path", (f"{target}?{sent.query}" if sent.query else target).encode()),
            *((b":authority", value) for value in authority),
            *((name, value) for name, value in sent.fields if name != b"host"),
        ]
        lengths = [value for name, value in sent.fields if name == b"content-length"]
        self._ends = all(value == b"%d" % len(sent.body) for value in lengths)  # otherwise more is to come
        self._stream_id = self._client.get_next_available_stream_id()
        self._client.send_headers(self._stream_id, head, end_stream=self._ends and not sent.body)
        self._unsaid = memoryview(sent.body)
        self._recording = recording
        recording.on_disconnect = self._leave
        self._say_body()

    def _say_body(self) -> None:
        client, stream_id = self._client, self._stream_id
        while self._unsaid:
            size = min(
                client.local_flow_control_window(stream_id),
                client.max_outbound_frame_size,
                len(self._unsaid),
            )
            if not size:
                break
            last = self._ends and size == len(self._unsaid)
            client.send_data(stream_id, self._unsaid[:size], end_stream=last)
            self._unsaid = self._unsaid[size:]
        self._reactor.look()

    def _leave(self) -> None:
        """Leave the exchange, and not the connection; a client that accepts nothing leaves both."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        if recording.stalled:
            self._left = True
        else:
            self._client.reset_stream(self._stream_id, h2.errors.ErrorCodes.CANCEL)
            self._end()
        self._reactor.look()

    def _end(self) -> None:
        self._unsaid = memoryview(b"")
        if not self._closed:
            self._free.append(self)

    def _hear(self, data: bytes) -> None:
        for event in self._client.receive_data(data):
            match event:
                case h2.events.ResponseReceived(headers=headers):
                    self._begin(headers)
                case h2.events.DataReceived():
                    self._take(event)
                case h2.events.StreamEnded(stream_id=self._stream_id):
                    self._complete()
                case h2.events.StreamReset(stream_id=self._stream_id):
                    recording, self._recording = self._recording, None
                    if recording is not None:
                        recording.abort()
                        self._end()
        if self._unsaid and self._recording is not None:
            self._say_body()
        self._reactor.look()

    def _begin(self, fields: Any) -> None:
        if self._recording is not None:
            status = int(dict(fields)[b":status"])
            self._recording.begin(status, [field for field in fields if field[0] != b":status"])

    def _take(self, event: h2.events.DataReceived) -> None:
        if event.flow_controlled_length:
            self._client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if self._recording is not None and event.data:
            self._recording.take(event.data, complete=False)

    def _complete(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.take(b"", complete=True)
            self._end()

    # -- the server's side -----------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Whether there is something to read, if only the end."""
        self._pending += self._client.data_to_send()
        return bool(self._pending) or self._left

    @property
    def ended(self) -> bool:
        """Whether the client has left, whatever there is to read."""
        return self._left

    @property
    def descriptor(self) -> int:
        """See `Pollable`; nobody asks."""
        raise NotImplementedError

    def receive_now(self, max_bytes: int = 64 * 1024) -> bytes | None:
        """See `DeadlineStream`."""
        if self._closed:
            raise trio.ClosedResourceError
        if not self.readable:
            return None
        data, self._pending = self._pending[:max_bytes], self._pending[max_bytes:]
        return data

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See `trio.abc.ReceiveStream`."""
        await trio.lowlevel.checkpoint()
        while (data := self.receive_now(max_bytes or 64 * 1024)) is None:
            await self._reactor.changed()
        return data

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """See `DeadlineStream`."""
        if self._closed or self._left:
            raise trio.BrokenResourceError
        if self._recording is not None and self._recording.stalled and _is_of_a_stream(data):
            return 0
        self._hear(bytes(data))
        return len(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `trio.abc.SendStream`."""
        await trio.lowlevel.checkpoint()
        recording = self._recording
        if recording is not None:
            with trio.move_on_after(self._seconds):
                await recording.wait_for(lambda: recording.disconnected or not recording.stalled)
            if recording.stalled and not recording.disconnected and _is_of_a_stream(data):
                raise trio.BrokenResourceError("the client accepts nothing")
        self.send_now(data)

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream`; nobody asks."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """See `trio.abc.AsyncResource`."""
        self.close()
        await trio.lowlevel.checkpoint()

    # -- the owner -------------------------------------------------------------------------------

    def close(self) -> None:
        """See `Http2ConnectionOwner`."""
        self._closed = True
        if self in self._free:
            self._free.remove(self)
        if self._recording is not None:
            self._recording.abort()
        self._reactor.look()

    def blame(self, fault: Exception) -> None:
        """See `Http2ConnectionOwner`. No test breaks a connection in this way."""
        raise fault


def _is_of_a_stream(data: bytes | bytearray | memoryview) -> bool:
    """Whether something of this is said in a stream, and not of the connection alone, as its settings are."""
    at = 0
    while at < len(data):
        if any(data[at + 5 : at + 9]):
            return True
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return False
