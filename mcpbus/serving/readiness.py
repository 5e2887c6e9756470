"""When something has come on one connection, or its client has left."""

from contextlib import suppress
from typing import Any

import trio

from mcpbus.serving.reactor import Pollable, Reactor, Turn


class Readiness:
    """Has a reactor wait for a connection.

    Args:
        stream: The connection.
        reactor: Waits for it; None if it cannot be polled, such as TLS.
        reactor_below: Waits for the end of what lies below one that cannot be polled, if the system has something to do it with.

    Attributes:
        watched: Whether it is waited for until something comes.
        end_watched: Whether it is waited for until the client leaves.
    """

    __slots__ = ("_ending", "_reactor", "_reactor_below", "_stream", "watched")

    def __init__(
        self, stream: trio.abc.Stream, reactor: Reactor | None, reactor_below: Reactor | None
    ) -> None:
        self._stream: Any = stream  # whoever gave a reactor knows that it can be polled
        self._reactor = reactor
        self._reactor_below = reactor_below
        self._ending: Pollable | None = None
        self.watched = False

    @property
    def end_watched(self) -> bool:
        """See above."""
        return self._ending is not None

    def watch(self, turn: Turn) -> None:
        """Have a turn taken whenever something has come, if it can be polled.

        Raises:
            OSError: There are bounds to what a kernel waits for.
        """
        if self._reactor is not None and not self.watched:
            self.forget()
            self._reactor.watch(self._stream, turn)
            self.watched = True

    def watch_end(self, turn: Turn) -> None:
        """Have a turn taken when the client leaves, while nothing more is read of what it sends."""
        self.forget()
        below = self._stream if self._reactor is not None else getattr(self._stream, "transport_stream", None)
        if self._reactor_below is not None and below is not None:
            with suppress(OSError):
                self._reactor_below.watch_end(below, turn)
                self._ending = below

    def forget(self) -> None:
        """Have no turn taken any more."""
        if self._reactor is not None and self.watched:
            self.watched = False
            self._reactor.forget(self._stream)
        self.forget_end()

    def forget_end(self) -> None:
        """Have none taken when the client leaves."""
        if self._ending is not None:
            assert self._reactor_below is not None  # noqa: S101 - it watches it
            self._reactor_below.forget(self._ending)
            self._ending = None

    async def client_left(self) -> None:
        """Wait until the client has left, and read nothing of what it sends."""
        left = trio.Event()
        self.watch_end(left.set)
        try:
            await left.wait()
        finally:
            self.forget_end()
