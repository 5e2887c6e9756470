"""Accepts connections up to the limit, detects the protocol of each, and keeps the faults of one from the others."""

import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final

import trio

from mcpbus.core.concurrency import ReportErrors
from mcpbus.core.shares import NoRoomError, Shares
from mcpbus.protocol.principals import LOCAL, Peer
from mcpbus.serving.counters import ServerCounters
from mcpbus.serving.deadlines import GONE, DeadlineStream
from mcpbus.serving.http1.connection import Http1Connection
from mcpbus.serving.http1.encoder import CLOSE, encode_answer
from mcpbus.serving.http2.connection import Http2Connection
from mcpbus.serving.http2.errors import AbuseFault, ConnectionFault
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.listeners import ConnectionCounts
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.reactor import Reactor
from mcpbus.serving.served_app import ServedApp
from mcpbus.serving.tls_stream import TlsStream
from mcpbus.transports.responses import RETRY_AFTER

OUT_OF_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Why the system may not accept a connection which stays where it is."""
BROKEN: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP})
"""Why nothing can be accepted any more. All else is a fault of the one connection, which is gone (accept(2))."""
ROOM_SECONDS: Final = 0.1
"""How long not to accept after there was no room for another connection."""

_KEPT_BACK: Final = 64
_MOST: Final = 100_000


def most_connections() -> int:
    """Return how many connections there may be by default.

    Of the descriptors that the process may open an eighth is kept back for what handlers open, and 64 if half of them are more.
    """
    try:
        import resource  # noqa: PLC0415 - not everywhere
    except ImportError:
        return _MOST
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, max(1, descriptors // 2, descriptors - max(_KEPT_BACK, descriptors // 8)))


def reject_connection(transport: DeadlineStream, full: NoRoomError) -> None:
    """Close a connection for which there is no room; send the reason as far as that takes no time, and no handshake."""
    if not transport.secure:
        status, why = (
            (429, b"too many connections from here\n") if full.past_share else (503, b"the server is full\n")
        )
        fields = [(b"content-type", b"text/plain; charset=utf-8"), RETRY_AFTER]
        with suppress(*GONE):
            # The kernel resets a connection that is closed with something unread, and the client loses what it was told.
            transport.receive_now()
            transport.send_now(encode_answer(status, fields, why, CLOSE))
    transport.close()


_logger = logging.getLogger("mcpbus.serving")

_MOST_AT_ONCE: Final = 64
"""Connections that are accepted in a row, before other tasks may run."""


class AcceptedConnection:
    """One accepted connection, until its socket is closed.

    Args:
        acceptor: Who accepted it.
        transport: Its socket.
        peer: From where it comes.
        name: The same with its port, for the log.
    """

    __slots__ = ("_acceptor", "_begun", "_name", "peer", "serving", "transport")

    def __init__(self, acceptor: "Acceptor", transport: DeadlineStream, peer: Peer, name: str) -> None:
        self._acceptor = acceptor
        self._name = name
        self.peer = peer
        self._begun = trio.current_time()
        self.transport = transport
        self.serving: Http1Connection | Http2Connection | None = None

    def idle_since(self) -> float | None:
        """Tell since when it has no request, if only because its TLS handshake is not over; None while it has one."""
        return self._begun if self.serving is None else self.serving.idle_since()

    def make_room(self) -> None:
        """End, being idle."""
        if self.serving is None:
            self.transport.abort()
            self._acceptor.closed(self)
        else:
            self.serving.retire()

    def close_when_idle(self, seconds: float) -> float:
        """End with the request that is under way; if there is none, once there was none for so many seconds.

        Returns:
            For how many seconds it stays open if none comes.
        """
        return 0 if self.serving is None else self.serving.linger(seconds)

    def begin(self) -> None:
        """Serve it, to its end. No schedule point."""
        if isinstance(self.transport, TlsStream):
            self.start_soon(self._shake_hands, self.transport)
        else:
            self._serve_http1(b"")

    async def _shake_hands(self, stream: TlsStream) -> None:
        acceptor = self._acceptor
        try:
            with trio.fail_after(acceptor.options.tls_handshake_timeout):
                early = await stream.shake_hands(acceptor.service.newcomers)
        except trio.TooSlowError:
            acceptor.app.note("tls_handshake_timeout", self.peer, "a connection was closed")
            raise
        if stream.protocol == "h2":
            await self.serve_http2(early)
        else:
            self._serve_http1(early)

    def _serve_http1(self, data: bytes) -> None:
        service = self._acceptor.service
        connection = Http1Connection(service, self.transport, self, service.reactor)
        connection.begin(data)
        self._enter(connection)

    async def serve_http2(self, data: bytes) -> None:
        """See `Http1ConnectionOwner`."""
        service = self._acceptor.service
        connection = Http2Connection(service, self.transport, self, service.reactor)
        self._enter(connection)
        await connection.run(data)

    def _enter(self, connection: Http1Connection | Http2Connection) -> None:
        self.serving = connection
        if self._acceptor.retired:
            connection.retire()

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """See `Http1ConnectionOwner`."""
        self._acceptor.nursery.start_soon(self._contain, function, args)

    async def _contain(self, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        """Keep what is raised in a connection from reaching the others."""
        whole = False
        try:
            with ReportErrors(self._report):
                try:
                    await function(*args)
                    whole = True
                except* (
                    OSError,
                    trio.BrokenResourceError,
                    trio.ClosedResourceError,
                    trio.TooSlowError,
                ) as gone:
                    _logger.debug("connection from %s was lost: %s", self._name, _reasons(gone))
        finally:
            if not whole:
                self._acceptor.closed(self)

    def lose(self, failure: Exception) -> None:
        """Close a connection that cannot even begin."""
        self._report(failure)
        self._acceptor.closed(self)

    def _report(self, failure: BaseException) -> None:
        self._acceptor.counters.failed += 1
        self._acceptor.service.complaints.warn(
            "connection from %s was ended by %s",
            self._name,
            _reasons(failure),
            exc_info=failure if _logger.isEnabledFor(logging.DEBUG) else None,
        )

    def blame(self, fault: ConnectionFault) -> None:
        """Tell that its client has broken the connection."""
        if isinstance(fault, AbuseFault):
            self._acceptor.counters.abusive += 1
            self._acceptor.service.complaints.warn(
                "connection from %s was ended for abuse: %s", self._name, fault
            )
        else:
            self._report(fault)

    def close(self) -> None:
        """See `Http1ConnectionOwner`."""
        self._acceptor.closed(self)

    def report_stall(self, seconds: float) -> None:
        """Tell that its client accepted nothing, if so it ended."""
        if self.transport.stalled:
            self._acceptor.counters.stalled += 1
            consequence = f"a connection that accepted nothing for {seconds:g} s was ended"
            self._acceptor.app.note("write_deadline", self.peer, consequence)


class Acceptor:
    """Accepts connections, contains their exceptions, and knows which are open.

    Args:
        app: The application.
        options: How it is served.
        nursery: Where the tasks of connections run.
        tls: How connections are encrypted; None for cleartext.
        counters: Counts connections.
        board: How many other processes have, that listen on the same sockets.

    Attributes:
        service: What connections share.
        retired: Whether connections end with the request that is under way.
    """

    def __init__(
        self,
        app: ServedApp,
        options: ServeOptions,
        nursery: trio.Nursery,
        *,
        tls: ssl.SSLContext | None,
        counters: ServerCounters,
        board: ConnectionCounts | None = None,
    ) -> None:
        self.app = app
        self.options = options
        self.nursery = nursery
        self.counters = counters
        self.tls = tls
        self.service = HttpServer(app, options, Reactor(copy_context()), counters)
        self.retired = False
        self._board = board
        self._open: set[AcceptedConnection] = set()
        self._all_closed = trio.Event()
        self._shares = Shares(options.max_connections or most_connections(), AcceptedConnection.idle_since)

    async def accept(self, listening: socket.socket) -> None:
        """Accept connections, until cancelled; then others are refused."""
        listening.setblocking(False)
        with listening:
            while True:
                await trio.lowlevel.wait_readable(listening)
                if self._board is not None:
                    await self._board.give_way()
                if not self._accept_waiting(listening):
                    await trio.sleep(ROOM_SECONDS)

    def _accept_waiting(self, listening: socket.socket) -> bool:
        """Accept the connections that wait. One for each turn of the scheduler would leave newcomers to those who make its turns long.

        Returns:
            Whether the system has room for more.
        """
        for _ in range(_MOST_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in BROKEN:
                    raise
                if error.errno in OUT_OF_ROOM:
                    self._note_out_of_room(error.errno)
                    return False
            else:
                self._take(trio.SocketStream(trio.socket.from_stdlib_socket(accepted)))
            if self._board is not None and self._board.is_ahead:
                break
        return True

    def _note_out_of_room(self, number: int) -> None:
        why = f"a connection could not be accepted: {os.strerror(number)}"
        self.app.note("max_connections", None, why)
        self._displace(self._shares.displace())

    def _take(self, stream: trio.SocketStream) -> None:
        self.counters.accepted += 1
        seconds, tls = self.options.write_deadline, self.tls
        transport = DeadlineStream(stream, seconds) if tls is None else TlsStream(stream, seconds, tls)
        peer, name = _peer(stream)
        try:
            displaced = self._shares.make_room(peer)
        except NoRoomError as full:
            self.counters.turned_away += 1
            self.app.note("max_connections", peer, "a connection was refused")
            reject_connection(transport, full)
            return
        if displaced is not None:
            self.app.note("max_connections", displaced.peer, "a connection that was idle made room")
        self._displace(displaced)
        self._count(1)
        accepted = AcceptedConnection(self, transport, peer, name)
        self._open.add(accepted)
        self._shares.enter(peer, accepted)
        try:
            accepted.begin()
        except Exception as failure:  # noqa: BLE001 - it is that connection's, and others are still to be accepted
            accepted.lose(failure)

    def _displace(self, displaced: AcceptedConnection | None) -> None:
        if displaced is not None:
            self.counters.displaced += 1
            displaced.make_room()

    def closed(self, accepted: AcceptedConnection) -> None:
        """Close the socket of a connection that is over. Harmless once it is closed."""
        if accepted not in self._open:
            return
        accepted.report_stall(self.options.write_deadline)
        self._open.discard(accepted)
        self._shares.leave(accepted)
        self._count(-1)
        if self.retired and not self._open:
            self._all_closed.set()
        accepted.transport.close()
        accepted.serving = None  # they know each other, and should not wait for the garbage collector

    def _count(self, more: int) -> None:
        self.counters.open += more
        if self._board is not None:
            self._board.note(self.counters.open)

    def retire(self, seconds: float) -> float:
        """Close connections that have been idle for so many seconds, the others as soon as they have or when their last request has ended.

        Returns:
            For how many seconds some are open that are idle.
        """
        self.retired = True
        longest = max((accepted.close_when_idle(seconds) for accepted in tuple(self._open)), default=0.0)
        if not self._open:
            self._all_closed.set()
        return longest

    async def wait_closed(self) -> None:
        """Wait until no connection is open; to be called after `retire`."""
        await self._all_closed.wait()

    def abort(self) -> None:
        """Reset every connection, so that no write delays its cancellation."""
        for accepted in tuple(self._open):
            accepted.transport.abort()
            self.closed(accepted)


def _peer(stream: trio.SocketStream) -> tuple[Peer, str]:
    """Return from where a connection comes, and its name for the log."""
    try:
        address = stream.socket.getpeername()
    except OSError:
        return LOCAL, "a client that has left"
    if not isinstance(address, tuple):
        return LOCAL, str(LOCAL)
    return Peer.at(address[0]), f"{address[0]}:{address[1]}"


def _reasons(error: BaseException) -> str:
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in _leaves(error))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
