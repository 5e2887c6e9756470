"""The HTTP/1.1 lane of one server: what its connections share, and the one task that watches their deadlines."""

import logging
import math
from contextvars import copy_context

import trio

from mcpbus.containment import run_lasting
from mcpbus.protocol.owners import Peer
from mcpbus.serving.asgi import DirectApp, Noting
from mcpbus.serving.complaints import Complaints
from mcpbus.serving.http1.head import Heads, RequestHead, Terms
from mcpbus.serving.http1.reactor import AVAILABLE, Poll
from mcpbus.serving.http1.wire import Http1Wire
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.write_coalescer import Flusher

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
        heads: Reads the heads of requests.
        complaints: Warns of what clients do.
        context: The context variables with which each request begins.
        clock: Tells trio's time, as `trio.current_time`, which takes two calls more.
        poll: Waits for connections that can be polled; None where the system has nothing to do it with.
        flusher: Has what is said in one turn of the scheduler written together.
        next_look: When `run` looks next, by trio's clock.
    """

    def __init__(self, app: DirectApp, options: ServeOptions) -> None:
        self.app = app
        self.options = options
        self.complaints = Complaints()
        self.heads = Heads(options.max_head_bytes)
        self.context = copy_context()
        self.clock = trio.lowlevel.current_clock().current_time
        self.poll = Poll(self.context) if AVAILABLE else None
        self.flusher = Flusher()
        self.next_look = math.inf
        self._sleeping = trio.CancelScope()
        self._connections: set[Http1Wire] = set()
        waits = (
            options.keep_alive_seconds,
            options.head_seconds,
            options.unread_body_seconds,
        )
        self._precision = min(_COARSEST, max(_FINEST, _PRECISION * min(waits)))

    async def run(self) -> None:
        """Serve the connections, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_lasting, self.flusher.run, "what writes for connections of the lane")
                if self.poll is not None:
                    nursery.start_soon(run_lasting, self.poll.run, "what waits for connections of the lane")
                await self._watch_deadlines()
        finally:
            for connection in tuple(self._connections):
                connection.lose()
            if self.poll is not None:
                self.poll.close()

    async def _watch_deadlines(self) -> None:
        while True:
            now = trio.current_time()
            self.next_look = math.inf  # which `look_at` lowers for a connection that was passed already
            soonest = self._end_waits(now)
            # With ten thousand idle connections some deadline passes all the time.
            self.next_look = max(min(soonest, self.next_look), now + self._precision)
            with trio.CancelScope(deadline=self.next_look) as self._sleeping:
                await trio.sleep_forever()

    def _end_waits(self, now: float) -> float:
        """End what takes too long, and return when the next wait does."""
        soonest = math.inf
        for connection in tuple(self._connections):
            if connection.expires <= now:
                self._expire(connection)
            soonest = min(soonest, connection.expires)
        return soonest

    def _expire(self, connection: Http1Wire) -> None:
        try:
            connection.expire()
        except Exception:
            _logger.exception("a connection could not be ended in order")
            connection.lose()

    def look_at(self, time: float) -> None:
        """Have `run` look at this time too."""
        self.next_look = self._sleeping.deadline = time

    def terms(self, head: RequestHead) -> Terms | None:
        """Who serves a request, and how; None: the application does, through ASGI."""
        endpoint, terms = self.app.direct(head.judged.path), head.terms
        if terms is not None and terms.endpoint is endpoint:
            return terms
        if endpoint is None or head.leaves:
            return None
        head.terms = Terms.of(endpoint, head.judged)
        return head.terms

    def enter(self, connection: Http1Wire) -> None:
        """Watch a connection's deadlines."""
        self._connections.add(connection)

    def leave(self, connection: Http1Wire) -> None:
        """Stop to watch them."""
        self._connections.discard(connection)

    def note(self, limit: str, whom: Peer, consequence: str) -> None:
        """Note that a limit was reached, if the application keeps a record of that; see `ReachedLimits.note`."""
        app: object = self.app
        if isinstance(app, Noting):
            app.reached.note(limit, whom, consequence)

    def report(self, failure: BaseException, verb: str, path: str) -> None:
        """Tell that the application raised while it served a request, which is then answered 500."""
        _logger.error("the application raised while it served %s %s", verb, path, exc_info=failure)
