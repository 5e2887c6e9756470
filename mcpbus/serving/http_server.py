"""What all connections of one server share, whichever version of HTTP they speak."""

import logging
from contextvars import copy_context

import trio

from mcpbus.core.concurrency import run_forever
from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.serving.counters import ServerCounters
from mcpbus.serving.deadlines import Deadlines
from mcpbus.serving.head_cache import HeadCacheEntry, RememberedHead, learn_facts
from mcpbus.serving.http1.head_cache import Http1HeadCache as Http1Heads
from mcpbus.serving.http2.head_cache import Http2HeadCache as Http2Heads
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.reactor import Reactor
from mcpbus.serving.served_app import ServedApp
from mcpbus.serving.turn_lines import FIRST_TURNS, MORE_TURNS, TurnLine
from mcpbus.serving.write_coalescer import WriteCoalescer


class HttpServer:
    """Serves an application: straight where it can be, and otherwise through ASGI.

    Args:
        app: The application.
        options: How it is served.
        reactor: Waits for connections, and takes their turns.
        counters: What has happened to all connections.

    Attributes:
        http1_heads: Reads the heads of requests over HTTP/1.1.
        http2_heads: Reads those over HTTP/2.
        complaints: Warns of what clients do.
        context: The context variables with which each request begins.
        coalescer: Has what is said in one turn written together.
        deadlines: Ends what takes a connection too long.
        newcomers: The line of connections that begin, and take more than a request to do so.
        returning: The line of connections that have more to do than one turn allows.
    """

    def __init__(
        self,
        app: ServedApp,
        options: ServeOptions,
        reactor: Reactor,
        counters: ServerCounters | None = None,
    ) -> None:
        self.app = app
        self.options = options
        self.reactor = reactor
        self.counters = ServerCounters() if counters is None else counters
        self.http1_heads = Http1Heads(options.max_head_bytes)
        self.http2_heads = Http2Heads(options.max_head_bytes)
        self.complaints = RateLimitedLogger(logging.getLogger("mcpbus.serving"))
        self.context = copy_context()
        self.coalescer = WriteCoalescer(reactor)
        self.newcomers = TurnLine(FIRST_TURNS)
        self.returning = TurnLine(MORE_TURNS)
        self.deadlines = Deadlines(
            min(
                options.keep_alive_timeout,
                options.head_timeout,
                options.unread_body_timeout,
                options.websocket_ping_interval,
            )
        )

    async def run(self) -> None:
        """Serve the connections, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_forever, self.coalescer.run, "what writes for connections")
                nursery.start_soon(run_forever, self.reactor.run, "what waits for connections")
                await self.deadlines.run()
        finally:
            self.deadlines.lose_all()
            self.reactor.close()

    def facts(self, head: RememberedHead) -> HeadCacheEntry | None:
        """Who serves a request, and how; None: the application does, through ASGI."""
        endpoint, facts = self.app.direct(head.judged.path), head.facts
        if facts is not None and facts.endpoint is endpoint:
            return facts
        return None if endpoint is None else learn_facts(endpoint, head)
