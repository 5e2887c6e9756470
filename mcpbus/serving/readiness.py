"""When something has come on one connection, or its client has left."""

from contextlib import suppress
from typing import Any

import trio

from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.reactor import Reactor, Turn


class Readiness:
    """Has a reactor wait for a connection.

    Args:
        service: What all connections of a server share.
        stream: The connection.
        reactor: Waits for it.

    Attributes:
        watched: Whether it is waited for until something comes.
    """

    __slots__ = ("_reactor", "_service", "_stream", "_watches_end", "watched")

    def __init__(self, service: HttpServer, stream: trio.abc.Stream, reactor: Reactor) -> None:
        self._service = service
        self._stream: Any = stream  # whoever gave a reactor knows that it can be polled
        self._reactor = reactor
        self._watches_end = False
        self.watched = False

    def watch(self, turn: Turn) -> bool:
        """Have a turn taken whenever something has come, and return True; if that cannot be, return False."""
        if not self.watched:
            self.forget()
            try:
                self._reactor.watch(self._stream, turn)
            except OSError as error:  # there are bounds to what a kernel waits for
                self._service.complaints.warn("a connection cannot be waited for: %s", error)
            else:
                self.watched = True
        return self.watched

    def watch_end(self, turn: Turn) -> None:
        """Have a turn taken when the client leaves, while nothing more is read of what it sends."""
        self.forget()
        with suppress(OSError):
            self._reactor.watch_end(self._stream, turn)
            self._watches_end = True

    def forget(self) -> None:
        """Have no turn taken any more."""
        if self.watched:
            self.watched = False
            self._reactor.forget(self._stream)
        self.forget_end()

    def forget_end(self) -> None:
        """Have none taken when the client leaves."""
        if self._watches_end:
            self._watches_end = False
            self._reactor.forget(self._stream)

    async def client_left(self) -> None:
        """Wait until the client has left, and read nothing of what it sends."""
        left = trio.Event()
        self.watch_end(left.set)
        try:
            await left.wait()
        finally:
            self.forget_end()
