"""The HTTP/1.1 lane of one server: what its connections share, and the one task that watches their deadlines."""

import logging
import math
from contextvars import copy_context

import trio

from mcpbus.serving.asgi import DirectApp
from mcpbus.serving.http1_connection import Http1Connection
from mcpbus.serving.options import ServeOptions

_logger = logging.getLogger("mcpbus.serving")

# How late a deadline may be noticed, as a part of the shortest one, and in seconds at least and at most.
_PRECISION = 0.05
_FINEST, _COARSEST = 0.001, 1.0


class Lane:
    """Serves an application over HTTP/1.1 without ASGI in between.

    A cancel scope or a timer for each request would cost a tenth of a short one. So a connection says until when it may
    wait, and `run` looks at all of them when the first of these times has come.

    Args:
        app: The application.
        options: How it is served.

    Attributes:
        context: The context variables with which each request begins.
        next_look: When `run` looks next, by trio's clock.
    """

    def __init__(self, app: DirectApp, options: ServeOptions) -> None:
        self.app = app
        self.options = options
        self.context = copy_context()
        self.next_look = math.inf
        self._sleeping = trio.CancelScope()
        self._connections: set[Http1Connection] = set()
        waits = (
            options.keep_alive_seconds,
            options.head_seconds,
            options.body_seconds,
            options.unread_body_seconds,
        )
        self._precision = min(_COARSEST, max(_FINEST, _PRECISION * min(waits)))

    async def run(self) -> None:
        """End what waits for too long, until cancelled."""
        while True:
            now = trio.current_time()
            soonest = math.inf
            for connection in self._connections:
                if connection.expires <= now:
                    connection.expire()
                else:
                    soonest = min(soonest, connection.expires)
            # With ten thousand idle connections some deadline passes all the time.
            self.next_look = max(soonest, now + self._precision)
            with trio.CancelScope(deadline=self.next_look) as self._sleeping:
                await trio.sleep_forever()

    def look_at(self, time: float) -> None:
        """Have `run` look at this time too."""
        self.next_look = self._sleeping.deadline = time

    def enter(self, connection: Http1Connection) -> None:
        """Watch a connection's deadlines."""
        self._connections.add(connection)

    def leave(self, connection: Http1Connection) -> None:
        """Stop to watch them."""
        self._connections.discard(connection)

    def report(self, failure: BaseExceptionGroup[Exception], verb: str, path: str) -> None:
        """Tell that the application raised while it served a request, which is then answered 500."""
        _logger.error("the application raised while it served %s %s", verb, path, exc_info=failure)
