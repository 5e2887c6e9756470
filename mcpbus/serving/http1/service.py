"""What the HTTP/1.1 connections of one server share."""

from contextvars import copy_context

import trio

from mcpbus.core.containment import run_lasting
from mcpbus.serving.complaints import Complaints
from mcpbus.serving.deadlines import Deadlines
from mcpbus.serving.head_facts import HeadFacts, learn_facts
from mcpbus.serving.http1.head import RequestHead
from mcpbus.serving.http1.heads import Heads
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.reactor import Reactor
from mcpbus.serving.served_app import ServedApp
from mcpbus.serving.write_coalescer import WriteCoalescer
from mcpbus.transports.websocket import WebSockets


class Http1Service:
    """Serves an application over HTTP/1.1: straight where it can be, and otherwise through ASGI.

    Args:
        app: The application.
        options: How it is served.
        reactor: Waits for connections that can be polled; None where the system has nothing to do it with.

    Attributes:
        heads: Reads the heads of requests.
        complaints: Warns of what clients do.
        context: The context variables with which each request begins.
        reactor: The same.
        coalescer: Has what is said in one turn written together.
        deadlines: Ends what takes a connection too long.
    """

    def __init__(self, app: ServedApp, options: ServeOptions, reactor: Reactor | None = None) -> None:
        self.app = app
        self.options = options
        self.complaints = Complaints()
        self.heads = Heads(options.max_head_bytes)
        self.context = copy_context()
        self.reactor = reactor
        self.coalescer = WriteCoalescer(reactor)
        self.deadlines = Deadlines(
            min(
                options.keep_alive_seconds,
                options.head_seconds,
                options.unread_body_seconds,
                options.websocket_ping_seconds,
            )
        )

    async def run(self) -> None:
        """Serve the connections, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_lasting, self.coalescer.run, "what writes for HTTP/1.1 connections")
                if self.reactor is not None:
                    nursery.start_soon(run_lasting, self.reactor.run, "what waits for HTTP/1.1 connections")
                await self.deadlines.run()
        finally:
            self.deadlines.lose_all()
            if self.reactor is not None:
                self.reactor.close()

    def facts(self, head: RequestHead) -> HeadFacts | None:
        """Who serves a request, and how; None: the application does, through ASGI."""
        endpoint, facts = self.app.direct(head.judged.path), head.facts
        if facts is not None and facts.endpoint is endpoint:
            return facts
        if endpoint is None or head.leaves:
            return None
        return learn_facts(endpoint, head)

    def websockets(self, head: RequestHead) -> WebSockets | None:
        """Who opens the WebSocket that a request asks for; None: the application does, through ASGI."""
        endpoint = self.app.direct(head.judged.path)
        return None if endpoint is None else endpoint.websockets
