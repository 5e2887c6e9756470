"""Exchanges with mcpbus's own HTTP/1.1 server: requests travel as bytes, over connections in memory that are kept alive."""

import math
from functools import partial
from urllib.parse import quote

import httptools
import trio

from mcpbus.serving.asgi import DirectApp
from mcpbus.serving.http1_connection import Http1Connection
from mcpbus.serving.http1_lane import Lane
from mcpbus.serving.options import ServeOptions
from mcpbus.testing.recording import Recording, Sent


class OverHttp1:
    """Sends each request on a connection that is free, or a new one.

    Args:
        app: `Bus.asgi()`, or another application that is served without ASGI.
        nursery: Where the server's side runs; what the application raises, is raised there.
    """

    def __init__(self, app: DirectApp, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        # A test says itself what comes too late.
        self._lane = _StrictLane(app, ServeOptions(keep_alive_seconds=math.inf))
        self._free: list[_Wire] = []
        nursery.start_soon(self._lane.run)

    def send(self, sent: Sent, recording: Recording) -> None:
        """Begin an exchange."""
        wire = self._free.pop() if self._free else self._connect()
        wire.send(sent, recording)

    def _connect(self) -> "_Wire":
        wire = _Wire(self._free, self._lane.options.write_deadline_seconds)
        self._nursery.start_soon(self._serve, wire)
        return wire

    async def _serve(self, wire: "_Wire") -> None:
        await Http1Connection(self._lane, wire, self._nursery, partial(_finish, wire)).run()


async def _finish(wire: "_Wire", rest: bytes | None) -> None:
    if rest is not None:
        raise AssertionError("the application does not serve this path, or this protocol, without ASGI")
    await wire.aclose()


class _StrictLane(Lane):
    def report(self, failure: BaseExceptionGroup[Exception], verb: str, path: str) -> None:  # noqa: ARG002
        """Let a test fail for what a server writes into its log."""
        raise failure


class _Wire(trio.abc.Stream):
    """The server's end of a connection; the client's end writes into the recording of the exchange that goes on.

    Args:
        free: Where the connection is put while no exchange goes on.
        seconds: How long a client has to accept something.
    """

    def __init__(self, free: "list[_Wire]", seconds: float) -> None:
        self._free = free
        self._seconds = seconds
        self._pending = b""
        self._recording: Recording | None = None
        self._arrived = trio.Event()

    def send(self, sent: Sent, recording: Recording) -> None:
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
        self._arrived.set()

    # -- the server's side -----------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._pending:
            if not await self._wait_for_more():
                return b""
        data, self._pending = self._pending[:max_bytes], self._pending[max_bytes or len(self._pending) :]
        return data

    async def _wait_for_more(self) -> bool:
        """Wait for the next request, and return False if the client has gone before."""
        recording = self._recording
        if recording is None:
            self._arrived = trio.Event()
            await self._arrived.wait()
        else:
            await recording.wait_for(lambda: recording.disconnected or self._recording is not recording)
        return recording is None or not recording.disconnected

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        recording = self._recording
        await trio.lowlevel.checkpoint()
        if recording is None:
            raise AssertionError(f"the server speaks out of turn: {bytes(data)!r}")
        with trio.move_on_after(self._seconds):
            await recording.wait_for(lambda: recording.disconnected or not recording.stalled)
        if recording.disconnected or recording.stalled:
            raise trio.BrokenResourceError("the client has gone, or accepts nothing")
        self._parser.feed_data(data)
        if recording.complete:
            self._recording = None
            if recording.headers.get("connection") != "close":
                self._free.append(self)
            recording.notify()

    async def wait_send_all_might_not_block(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        if self in self._free:
            self._free.remove(self)
        if self._recording is not None:
            self._recording.abort()
        await trio.lowlevel.checkpoint()


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
