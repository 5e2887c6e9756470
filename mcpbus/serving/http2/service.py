"""What the HTTP/2 connections of one server share."""

from contextvars import copy_context

import trio

from mcpbus.core.containment import run_lasting
from mcpbus.serving.counters import Counters
from mcpbus.serving.deadlines import Deadlines
from mcpbus.serving.head_facts import HeadFacts, learn_facts
from mcpbus.serving.http2.head import RequestHead
from mcpbus.serving.http2.heads import Heads
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.reactor import Reactor
from mcpbus.serving.served_app import ServedApp
from mcpbus.serving.write_coalescer import WriteCoalescer


class Http2Service:
    """Serves an application over HTTP/2: straight where it can be, and otherwise through ASGI.

    Args:
        app: The application.
        options: How it is served.
        counters: What has happened to all connections.
        reactor: Takes the turns of connections; None where each has a task.

    Attributes:
        heads: Reads the heads of requests.
        context: The context variables with which each request begins.
        coalescer: Has what is said in one turn written together.
        deadlines: Ends what takes a connection too long.
    """

    def __init__(
        self, app: ServedApp, options: ServeOptions, counters: Counters, reactor: Reactor | None = None
    ) -> None:
        self.app = app
        self.options = options
        self.counters = counters
        self.heads = Heads(options.max_head_bytes)
        self.context = copy_context()
        self.coalescer = WriteCoalescer(reactor)
        self.deadlines = Deadlines(
            min(options.keep_alive_seconds, options.head_seconds, options.unread_body_seconds)
        )

    async def run(self) -> None:
        """Serve the connections, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_lasting, self.coalescer.run, "what writes for HTTP/2 connections")
                await self.deadlines.run()
        finally:
            self.deadlines.lose_all()

    def facts(self, head: RequestHead) -> HeadFacts | None:
        """Who serves a request, and how; None: the application does, through ASGI."""
        endpoint, facts = self.app.direct(head.judged.path), head.facts
        if facts is not None and facts.endpoint is endpoint:
            return facts
        return None if endpoint is None else learn_facts(endpoint, head)
