"""The HTTP/1.1 lane of one server: what its connections share, and the one task that watches their deadlines."""

from contextvars import copy_context

import trio

from mcpbus.serving.asgi import DirectApp
from mcpbus.serving.http1_connection import Http1Connection
from mcpbus.serving.options import ServeOptions

# No deadline is missed by more; and a wait of no time at all does not become a loop.
_PRECISION = 0.01


class Lane:
    """Serves an application over HTTP/1.1 without ASGI in between.

    A cancel scope or a timer for each request would cost a tenth of a short one. So a connection says until when it may
    wait, and `run` looks at all of them just often enough to find each that is over its time.

    Args:
        app: The application.
        options: How it is served.

    Attributes:
        context: The context variables with which each request begins.
    """

    def __init__(self, app: DirectApp, options: ServeOptions) -> None:
        self.app = app
        self.options = options
        self.context = copy_context()
        self._connections: set[Http1Connection] = set()
        waits = (
            options.keep_alive_seconds,
            options.head_seconds,
            options.body_seconds,
            options.unread_body_seconds,
        )
        self._shortest = max(_PRECISION, min(waits))

    async def run(self) -> None:
        """End what waits for too long, until cancelled."""
        while True:
            now = trio.current_time()
            # A wait that begins after this look cannot end before the next one.
            next_look = now + self._shortest
            for connection in self._connections:
                if connection.expires <= now:
                    connection.expire()
                else:
                    next_look = min(next_look, max(connection.expires, now + _PRECISION))
            await trio.sleep_until(next_look)

    def enter(self, connection: Http1Connection) -> None:
        """Watch a connection's deadlines."""
        self._connections.add(connection)

    def leave(self, connection: Http1Connection) -> None:
        """Stop to watch them."""
        self._connections.discard(connection)
