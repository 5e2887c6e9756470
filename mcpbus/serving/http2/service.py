"""What the HTTP/2 connections of one server share."""

import functools
import time
from contextvars import copy_context
from email.utils import formatdate

import trio

from mcpbus.core.containment import run_lasting
from mcpbus.serving.counters import Counters
from mcpbus.serving.head_facts import HeadFacts
from mcpbus.serving.http1.deadlines import Deadlines
from mcpbus.serving.http2.head import Heads, RequestHead
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.served_app import ServedApp
from mcpbus.serving.write_coalescer import WriteCoalescer


class Http2Service:
    """Serves an application over HTTP/2: straight where it can be, and otherwise through ASGI.

    Args:
        app: The application.
        options: How it is served.
        counters: What has happened to all connections.

    Attributes:
        heads: Reads the heads of requests.
        context: The context variables with which each request begins.
        coalescer: Has what is said in one turn of the scheduler written together.
        deadlines: Ends what takes a connection too long.
    """

    def __init__(self, app: ServedApp, options: ServeOptions, counters: Counters) -> None:
        self.app = app
        self.options = options
        self.counters = counters
        self.heads = Heads(options.max_head_bytes)
        self.context = copy_context()
        self.coalescer = WriteCoalescer()
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
        endpoint = self.app.direct(head.judged.path)
        facts = head.facts
        if facts is not None and facts.endpoint is endpoint:
            return facts
        if endpoint is None:
            return None
        head.facts = HeadFacts.of(endpoint, head.judged)
        return head.facts

    def date(self) -> tuple[bytes, bytes]:
        """The field that says what time it is."""
        return _date(int(time.time()))


@functools.lru_cache(maxsize=2)
def _date(now: int) -> tuple[bytes, bytes]:
    return b"date", formatdate(now, usegmt=True).encode()
