"""A server in virtual time that takes connections as if it had accepted them: pairs of sockets, with nothing to listen on."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from mcpbus import Bus, ServeOptions
from mcpbus.serving import ServerCounters
from mcpbus.serving.acceptor import Acceptor
from mcpbus.serving.http2.errors import AbuseFault, ConnectionFault
from mcpbus.serving.served_app import ServedApp
from mcpbus.testing import open_bus
from tests.fuzz.fuzz_server import LIMITS, LONG, make_server
from tests.fuzz.fuzz_virtual import assert_balanced, assert_empty

BLAMED = {kind.__name__ for kind in (ConnectionFault, AbuseFault)}
"""What a connection may be ended by: faults of the client's, by the names under which they are logged."""


class _Ends(logging.Handler):
    """Keeps what ended connections."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        _, ended, reasons = said.partition(" was ended by ")
        if ended and not {reason.partition(":")[0] for reason in reasons.split("; ")} <= BLAMED:
            self.faults.append(said)


class Guarded:
    """The server, and who is connected to it."""

    def __init__(self, bus: Bus, acceptor: Acceptor, nursery: trio.Nursery) -> None:
        self.bus = bus
        self._acceptor = acceptor
        self._nursery = nursery

    def connect(self) -> "Peer":
        ours, theirs = socket.socketpair()
        self._acceptor._take(trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        peer = Peer(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
        self._nursery.start_soon(peer.listen)
        return peer


class Peer:
    """One client, which takes all that it is sent.

    Attributes:
        heard: What that was.
        over: Whether the server has closed the connection.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.heard = b""
        self.over = False
        self._stream = stream

    async def listen(self) -> None:
        try:
            while data := await self._stream.receive_some():
                self.heard += data
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.over = True

    async def say(self, data: bytes) -> None:
        """Say something, if the server still listens."""
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.over = True

    def leave(self) -> None:
        self._stream.socket.close()


@asynccontextmanager
async def open_guarded() -> AsyncIterator[Guarded]:
    """Open a server; at the end of the block all clients must have left, and nothing of them may stay behind."""
    ends, logger = _Ends(), logging.getLogger("mcpbus.serving")
    logger.addHandler(ends)
    async with open_bus(make_server(), limits=LIMITS) as bus, trio.open_nursery() as nursery:
        acceptor = Acceptor(
            ServedApp(bus.asgi()), ServeOptions(), nursery, tls=None, counters=ServerCounters()
        )
        nursery.start_soon(acceptor.service.run)
        try:
            yield Guarded(bus, acceptor, nursery)
        finally:
            logger.removeHandler(ends)
        await trio.sleep(LONG)
        assert acceptor.counters.open == 0, "a connection is open though its client has left"
        assert not ends.faults, ends.faults
        assert_balanced(bus)
        assert_empty(bus)
        nursery.cancel_scope.cancel()
