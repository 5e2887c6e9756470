"""One accepted connection: reads, writes, and knows when it is idle."""

import math
from typing import cast

import attrs
import trio

from mcpbus.core.reached_limits import ReachedLimits
from mcpbus.protocol.owners import Peer
from mcpbus.serving.app_tasks import Tasks
from mcpbus.serving.asgi import AsgiApp, Noting
from mcpbus.serving.counters import Counters
from mcpbus.serving.deadline_stream import DeadlineStream
from mcpbus.serving.hypercorn import (
    AppWrapper,
    Closed,
    Config,
    ConnectionState,
    Event,
    H2ProtocolAssumedError,
    Held,
    RawData,
    TaskGroup,
    Updated,
    WorkerContext,
    parse_socket_addr,
)
from mcpbus.serving.hypercorn_http1 import GuardedH11Protocol
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.write_coalescer import WriteCoalescer

_READ_BYTES = 64 * 1024

Stream = DeadlineStream | trio.SSLStream[DeadlineStream]


@attrs.frozen
class Service:
    """What all connections of one server share.

    Attributes:
        app: The application.
        options: What we were told.
        config: The same in hypercorn's words.
        context: Tells hypercorn's protocols that the server is terminating.
        state: What the application's lifespan left for its requests.
        coalescer: Ends the wait of what is held back.
        counters: What has happened to all of them.
        reached: Which limits were reached, of an application that keeps no record of that.
    """

    app: AsgiApp
    options: ServeOptions
    config: Config
    context: WorkerContext
    state: dict[str, object]
    coalescer: WriteCoalescer
    counters: Counters
    reached: ReachedLimits = attrs.field(factory=ReachedLimits)

    def note(self, limit: str, whom: Peer | None, consequence: str) -> None:
        """Note that a limit was reached, of this server or of the application's; see `ReachedLimits.note`."""
        app: object = self.app
        reached = app.reached if isinstance(app, Noting) else self.reached
        reached.note(limit, whom, consequence)


class Connection:
    """Joins a socket with hypercorn's protocol for it, and is the protocol's way to write. Over TLS, hands have been shaken.

    A connection without a request is closed after `keep_alive_seconds`, at once when `retire` was called. One with a
    request is never closed for being quiet: that is what a stream of events is most of the time.
    """

    def __init__(self, service: Service, stream: Stream) -> None:
        self._service = service
        self._stream = stream
        self._idle = True
        self._retired = False
        # Its deadline is the end of an idle connection; a write that failed cancels it.
        self._reading = trio.CancelScope()
        self._unwritten: list[bytes] = []
        self._writing = False
        self._written = trio.lowlevel.ParkingLot()
        self._protocol: GuardedH11Protocol
        self._rest: bytes | None = None  # what is for who speaks HTTP/2

    async def run(self, data: bytes = b"") -> bytes | None:
        """Serve the connection to its end, and that of the applications it has called.

        Args:
            data: What has been read from it already.

        Returns:
            What its client has said so far, if that is HTTP/2; the connection is open then.

        Raises:
            Exception: Anything that a protocol library does with what the client sent; usually in a group.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._tasks = Tasks(nursery, self._service.options, flush=self.flush)
            self._protocol = self._speak()
            await self._protocol.initiate()
            with self._reading:
                self._set_idle(True)
                if data:
                    await self._take(data)
                await self._read()
            self._tasks.end_websockets()
            if self._rest is None:
                await self._protocol.handle(Closed())
            self._tasks.end_helpers()
            # What the client asked for may go on without it, and it may still read although it has stopped to
            # write; so the socket stays until the applications have ended.
        if self._rest is None:
            await self._stream.aclose()
        return self._rest

    def idle_since(self) -> float | None:
        """Tell since when no request is under way; None while one is."""
        if not self._idle:
            return None
        return self._reading.deadline - self._service.options.keep_alive_seconds

    def retire(self) -> None:
        """Close as soon as no request is under way."""
        self._retired = True
        self._set_idle(self._idle)

    def _speak(self) -> GuardedH11Protocol:
        self._secure = isinstance(self._stream, trio.SSLStream)
        below = self._stream.transport_stream if isinstance(self._stream, trio.SSLStream) else self._stream
        socket = below.socket
        return GuardedH11Protocol(
            cast("AppWrapper", self._service.app),  # it is only ever handed to `Tasks.spawn_app`
            self._service.config,
            self._service.context,
            cast("TaskGroup", self._tasks),
            ConnectionState(self._service.state),
            self._secure,
            parse_socket_addr(socket.family, socket.getpeername()),
            parse_socket_addr(socket.family, socket.getsockname()),
            self._send,
        )

    async def _read(self) -> None:
        data: bytes | bytearray = b"..."
        while data and self._rest is None:
            try:
                data = await self._stream.receive_some(_READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            await self._take(bytes(data))

    async def _take(self, data: bytes) -> None:
        try:
            await self._protocol.handle(RawData(data=data))
        except H2ProtocolAssumedError as assumed:
            self._rest = assumed.data

    async def flush(self) -> None:
        """Write all that the protocol has said so far; returns when it is written, or the connection is lost.

        Whoever writes takes along what others say meanwhile, in the order in which it was said. A task that is
        cancelled while another one writes for it leaves nothing out.
        """
        if self._writing:
            await self._written.park()
            return
        self._writing = True
        try:
            while self._unwritten:
                data = self._unwritten[0] if len(self._unwritten) == 1 else b"".join(self._unwritten)
                self._unwritten.clear()
                await self._write(data)
        finally:
            self._writing = False
            if self._written:
                self._written.unpark_all()

    def write_now(self) -> None:
        """Begin to write what is held back, unless somebody does already. See `Writer`."""
        if self._unwritten and not self._writing:
            self._nursery.start_soon(self.flush)

    async def _send(self, event: Event) -> None:
        if isinstance(event, RawData):
            if isinstance(event, Held):
                self._hold(event.data)
            else:
                self._unwritten.append(event.data)
                await self.flush()
        elif isinstance(event, Closed):
            await self.flush()
            await self._stream.aclose()
            self._reading.cancel()
        elif isinstance(event, Updated):
            self._set_idle(event.idle)

    def _hold(self, data: bytes) -> None:
        self._unwritten.append(data)
        if len(self._unwritten) == 1:
            self._service.coalescer.add(self)

    async def _write(self, data: bytes) -> None:
        try:
            if self._secure:
                # Half a record would corrupt what follows. The stream's own deadline ends this.
                with trio.CancelScope(shield=True):
                    await self._stream.send_all(data)
            else:
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._reading.cancel()
            await trio.lowlevel.cancel_shielded_checkpoint()  # an application may go on for a while

    def _set_idle(self, idle: bool) -> None:
        self._idle = idle
        if not idle:
            self._reading.deadline = math.inf
        elif self._retired:
            self._reading.deadline = -math.inf
        else:
            self._reading.deadline = trio.current_time() + self._service.options.keep_alive_seconds
