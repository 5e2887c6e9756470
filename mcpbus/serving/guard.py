"""Keeps what happens in one connection from reaching the others."""

import logging
import ssl
from collections.abc import Iterator

import trio
from h2.exceptions import DenialOfServiceError

from mcpbus.serving.asgi import AsgiApp, DirectApp
from mcpbus.serving.connection import Connection, Service, Stream
from mcpbus.serving.counters import Counters
from mcpbus.serving.held import Flusher
from mcpbus.serving.http1_connection import Http1Connection
from mcpbus.serving.http1_lane import Lane
from mcpbus.serving.hypercorn import WorkerContext, configure
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.stream import DeadlineStream

_logger = logging.getLogger("mcpbus.serving")


class Guard:
    """Runs each accepted connection, contains its exceptions, and knows which are open.

    hypercorn runs all connections in one nursery, where the exception of one ends them all.
    """

    def __init__(
        self,
        app: AsgiApp,
        options: ServeOptions,
        state: dict[str, object],
        *,
        tls: ssl.SSLContext | None,
        counters: Counters,
    ) -> None:
        context = WorkerContext(max_requests=None)
        self._service = Service(app, options, configure(options), context, state, Flusher(), counters)
        self._counters = counters
        self._tls = tls
        self._lane = None
        if options.http1 == "lane" and isinstance(app, DirectApp):
            self._lane = Lane(app, options)
        self._open: dict[DeadlineStream, Connection | Http1Connection | None] = {}
        self._all_closed = trio.Event()
        self._retired = False

    async def handle(self, socket_stream: trio.SocketStream) -> None:
        """Serve one connection; its socket is closed when this returns, whatever happened in it."""
        transport = DeadlineStream(socket_stream, self._service.options.write_deadline_seconds)
        self._counters.accepted += 1
        self._counters.open += 1
        self._open[transport] = None
        peer = _peer(socket_stream)
        try:
            await self._serve(transport)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as gone:
            _logger.debug("connection from %s was lost: %s", peer, _reasons(gone))
        except* DenialOfServiceError as abuse:
            self._counters.abusive += 1
            _logger.warning("connection from %s was ended for abuse: %s", peer, _reasons(abuse))
        except* Exception as failure:
            self._counters.failed += 1
            _logger.warning(
                "connection from %s was ended by %s",
                peer,
                _reasons(failure),
                exc_info=failure if _logger.isEnabledFor(logging.DEBUG) else None,
            )
        finally:
            if transport.stalled:
                self._counters.stalled += 1
                _logger.warning(
                    "connection from %s was ended: it accepted nothing for %g s",
                    peer,
                    self._service.options.write_deadline_seconds,
                )
            del self._open[transport]
            self._counters.open -= 1
            if self._retired and not self._open:
                self._all_closed.set()
            await trio.aclose_forcefully(transport)

    async def _serve(self, transport: DeadlineStream) -> None:
        """Serve a connection, over HTTP/1.1 in the lane if that is what its client speaks."""
        stream: Stream = transport
        if self._tls is not None:
            stream = trio.SSLStream(transport, self._tls, server_side=True, https_compatible=True)

        async def finish(data: bytes | None) -> None:
            if data is None:
                await stream.aclose()
            else:
                connection = Connection(self._service, stream)
                self._enter(transport, connection)
                await connection.run(data)

        if self._lane is None or not await self._may_be_http1(stream):
            await finish(b"")
            return
        # What the client asked for may go on without it.
        async with trio.open_nursery() as nursery:
            lane = Http1Connection(self._lane, stream, nursery, finish)
            self._enter(transport, lane)
            await lane.run()

    def _enter(self, transport: DeadlineStream, connection: Connection | Http1Connection) -> None:
        self._open[transport] = connection
        if self._retired:
            connection.retire()

    async def _may_be_http1(self, stream: Stream) -> bool:
        if isinstance(stream, DeadlineStream):
            return True
        with trio.fail_after(self._service.config.ssl_handshake_timeout):
            await stream.do_handshake()
        return bool(stream.selected_alpn_protocol() != "h2")

    async def run(self) -> None:
        """Do what is done for all connections together, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._service.flusher.run)
            if self._lane is not None:
                nursery.start_soon(self._lane.run)

    async def retire(self) -> None:
        """Close idle connections now, and the others when their last request has ended."""
        self._retired = True
        await self._service.context.terminated.set()
        for connection in self._open.values():
            if connection is not None:
                connection.retire()
        if not self._open:
            self._all_closed.set()

    async def wait_closed(self) -> None:
        """Wait until no connection is open; to be called after `retire`."""
        await self._all_closed.wait()

    def abort(self) -> None:
        """Reset every connection, so that no write delays its cancellation."""
        for transport in self._open:
            transport.abort()


def _peer(stream: trio.SocketStream) -> str:
    try:
        address = stream.socket.getpeername()
    except OSError:
        return "a client that has left"
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "a local client"


def _reasons(group: BaseExceptionGroup[BaseException]) -> str:
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in _leaves(group))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
