"""Exchanges with mcpbus's own HTTP/1.1 server: requests travel as bytes, over connections in memory that are kept alive."""

import math
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, Protocol, cast
from urllib.parse import quote

import httptools
import trio

from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.serving.asgi import DirectApp
from mcpbus.serving.http1.connection import Http1Connection
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.reactor import Pollable, Reactor, Turn
from mcpbus.serving.served_app import ServedApp
from mcpbus.testing.recording import Recording, SentRequest


class OverHttp1:
    """Sends each request on a connection that is free, or a new one.

    Args:
        app: `Bus.asgi()`, or another application that is served without ASGI.
        nursery: Where the server's side runs; what the application raises, is raised there.
    """

    def __init__(self, app: DirectApp, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        # A test says itself what comes too late.
        options = ServeOptions(keep_alive_timeout=math.inf)
        self._reactor = WireReactor()
        self._service = HttpServer(StrictApp(app, nursery), options, self._reactor)
        self._free: list[_Http1Wire] = []
        nursery.start_soon(self._service.run)

    def send(self, sent: SentRequest, recording: Recording) -> None:
        """Begin an exchange."""
        wire = self._free.pop() if self._free else self._connect()
        wire.send(sent, recording)

    def _connect(self) -> "_Http1Wire":
        wire = _Http1Wire(self._free, self._reactor, self._nursery, self._service.options.write_deadline)
        Http1Connection(self._service, wire, wire, self._reactor).begin()
        return wire


class StrictApp(ServedApp):
    """Lets a test fail for what a server writes into its log."""

    def __init__(self, app: Any, nursery: trio.Nursery) -> None:
        super().__init__(app)
        self._nursery = nursery

    def report(self, failure: BaseException, head: RequestHead | None) -> None:  # noqa: ARG002
        """Fail. In a task of its own: whoever reports may be a handler's task, where an exception is the handler's."""
        self._nursery.start_soon(_raise, failure)


async def _raise(failure: BaseException) -> None:
    raise failure


class Readable(Protocol):
    """A connection in memory."""

    @property
    def readable(self) -> bool:
        """Whether there is something to read, if only the end."""

    @property
    def ended(self) -> bool:
        """Whether the client has left, whatever there is to read."""


class WireReactor(Reactor):
    """Waits for connections in memory, which have no file descriptors; whoever writes to one calls `look`."""

    def __init__(self) -> None:
        super().__init__(copy_context())
        self._watched: dict[Readable, Turn] = {}
        self._watched_ends: dict[Readable, Turn] = {}
        self._something = trio.lowlevel.ParkingLot()

    def watch(self, connection: Pollable, turn: Turn) -> None:
        """See `Reactor`."""
        self._watched[cast("Readable", connection)] = turn
        self.look()

    def watch_end(self, connection: Pollable, turn: Turn) -> None:
        """See `Reactor`."""
        self._watched_ends[cast("Readable", connection)] = turn
        self.look()

    def forget(self, connection: Pollable) -> None:
        """See `Reactor`."""
        for watched in (self._watched, self._watched_ends):
            turn = watched.pop(cast("Readable", connection), None)
            if turn is not None:
                self._drop(turn)

    def look(self) -> None:
        """Take note that something may have come."""
        self._something.unpark_all()

    async def changed(self) -> None:
        """Wait until something may have come."""
        await self._something.park()

    async def _wait(self) -> bool:
        if not self._due:
            await trio.lowlevel.checkpoint()
            while not (due := self._find_due()):
                await self._something.park()
            self._due.extend(due)
        return True

    def _find_due(self) -> list[Turn]:
        due = [turn for wire, turn in self._watched.items() if wire.readable]
        return due + [turn for wire, turn in self._watched_ends.items() if wire.ended]


class _Http1Wire(trio.abc.Stream):
    """The server's end of a connection; the client's end writes into the recording of the exchange that goes on.

    It is its own `Http1ConnectionOwner`, too.

    Args:
        free: Where the connection is put while no exchange goes on.
        reactor: Waits for it.
        nursery: Where its tasks run.
        seconds: How long a client has to accept something.
    """

    peer = Peer.at("127.0.0.1")

    def __init__(
        self, free: "list[_Http1Wire]", reactor: WireReactor, nursery: trio.Nursery, seconds: float
    ) -> None:
        self._free = free
        self._reactor = reactor
        self._nursery = nursery
        self._seconds = seconds
        self._pending = b""
        self._recording: Recording | None = None

    def send(self, sent: SentRequest, recording: Recording) -> None:
        target = quote(sent.path, safe="/~!$&'()*+,;=:@%")
        fields = list(sent.fields)
        stated = any(name == b"content-length" for name, _ in fields)
        if not stated and (sent.body or sent.verb == "POST"):
            fields.append((b"content-length", b"%d" % len(sent.body)))
        self._pending = b"%b %b HTTP/1.1\r\n%b\r\n%b" % (
            sent.verb.encode(),
            (f"{target}?{sent.query}" if sent.query else target).encode(),
            b"".join([b"%b: %b\r\n" % field for field in fields]),
            sent.body,
        )
        self._recording = recording
        self._parser = _Listener(recording, bodiless=sent.verb == "HEAD").parser
        recording.on_disconnect = self._reactor.look
        self._reactor.look()

    # -- the server's side -----------------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Whether there is something to read, if only the end."""
        return bool(self._pending) or self.ended

    @property
    def ended(self) -> bool:
        """Whether the client has left, whatever there is to read."""
        return self._recording is not None and self._recording.disconnected

    def receive_now(self, max_bytes: int = 64 * 1024) -> bytes | None:
        if not self.readable:
            return None
        data, self._pending = self._pending[:max_bytes], self._pending[max_bytes:]
        return data

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self.readable:
            await self._reactor.changed()
        return self.receive_now(max_bytes or 64 * 1024) or b""

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        recording = self._recording
        if recording is None:
            raise AssertionError(f"the server speaks out of turn: {bytes(data)!r}")
        if recording.disconnected:
            raise trio.BrokenResourceError("the client has gone")
        if recording.stalled:
            return 0
        self._parser.feed_data(data)
        if recording.complete:
            self._recording = None
            if recording.headers.get("connection") != "close":
                self._free.append(self)
            recording.notify()
        return len(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        recording = self._recording
        await trio.lowlevel.checkpoint()
        if recording is not None:
            with trio.move_on_after(self._seconds):
                await recording.wait_for(lambda: recording.disconnected or not recording.stalled)
            if recording.stalled:
                raise trio.BrokenResourceError("the client accepts nothing")
        self.send_now(data)

    async def wait_send_all_might_not_block(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    @property
    def descriptor(self) -> int:
        raise NotImplementedError

    # -- the owner -------------------------------------------------------------------------------

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        self._nursery.start_soon(function, *args)

    def close(self) -> None:
        if self in self._free:
            self._free.remove(self)
        if self._recording is not None:
            self._recording.abort()

    async def serve_http2(self, data: bytes) -> None:
        raise AssertionError(f"not served without ASGI: {data[:80]!r}")


class _Listener:
    """Writes into a recording what llhttp reads of one answer."""

    def __init__(self, recording: Recording, *, bodiless: bool) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self._recording = recording
        self._bodiless = bodiless
        self._fields: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        fields, self._fields = self._fields, []
        if status >= 200:
            self._recording.begin(status, fields)
            if self._bodiless:
                self._recording.take(b"", complete=True)

    def on_body(self, body: bytes) -> None:
        self._recording.take(body, complete=False)

    def on_message_complete(self) -> None:
        if self._recording.status is not None and not self._recording.complete:
            self._recording.take(b"", complete=True)
