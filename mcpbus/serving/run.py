"""Serves an application from its first connection to its last."""

import logging
from contextlib import nullcontext
from functools import partial

import trio

from mcpbus.core.concurrency import ReportErrors, run_forever
from mcpbus.protocol.keywords import explained
from mcpbus.serving.acceptor import Acceptor
from mcpbus.serving.asgi import Announcing, AsgiApp, Drainable
from mcpbus.serving.counters import ServerCounters
from mcpbus.serving.hypercorn import serve_under_hypercorn
from mcpbus.serving.lifespan import lifespan
from mcpbus.serving.listeners import SharedSockets, listening, make_ssl_context, url_of
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.served_app import ServedApp

_logger = logging.getLogger("mcpbus.serving")

# After the drain's deadline: for the last words of cancelled requests to be written.
_LAST_WORDS_SECONDS = 0.25

_LINGER_SECONDS = 1.0
"""A connection whose client has just asked for something is not closed: the next request may be on its way. Nor does that take
more than a fifth of the drain."""


@explained
async def serve(
    app: AsgiApp,
    options: ServeOptions,
    *,
    shutdown: trio.Event | None = None,
    counters: ServerCounters | None = None,
    sharing: SharedSockets | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application over HTTP/1.1, HTTP/2 and WebSocket, until `shutdown` is set.

    Then, in this order: no more connections are accepted; `app.announce_drain` is called if the application has it; connections are
    closed that have been idle for a second; `app.drain` is awaited if the application has it, with what is left of `drain_timeout`;
    connections end with their last request. From the drain's deadline on the application has a quarter of a second for its last
    words, and its connections as long to take them; what is left then is cancelled and reset. A cancellation closes everything at once.

    Args:
        app: Any ASGI 3.0 application; its lifespan is run if it has one.
        options: Where to listen and how long to wait.
        shutdown: Set it to end serving in order; without one, only a cancellation ends it.
        counters: Counts connections; read it while serving. Under hypercorn nobody counts.
        sharing: What to listen on in place of what the options name, if other processes listen on it as well.
        task_status: Reports the URLs that are listened on, with the ports that port 0 became.

    Raises:
        CannotListenError: An address cannot be listened on, or the certificate cannot be used.
        LifespanError: The application's lifespan failed to start or to stop.
    """
    shutdown = trio.Event() if shutdown is None else shutdown
    tls = make_ssl_context(options)
    in_order = False
    with listening(options) if sharing is None else nullcontext(sharing.sockets) as sockets:
        if options.server == "hypercorn":
            await serve_under_hypercorn(app, options, sockets, shutdown=shutdown, task_status=task_status)
            return
        urls = [url_of(sock, secure=tls is not None) for sock in sockets]
        async with lifespan(app) as state, trio.open_nursery() as connections:
            counters = ServerCounters() if counters is None else counters
            board = None if sharing is None else sharing.board
            served = ServedApp(app, state)
            acceptor = Acceptor(served, options, connections, tls=tls, counters=counters, board=board)
            connections.start_soon(run_forever, acceptor.service.run, "what serves connections")
            try:
                async with trio.open_nursery() as accepting:
                    for sock in sockets:
                        accepting.start_soon(acceptor.accept, sock)
                    task_status.started(urls)
                    await shutdown.wait()
                    accepting.cancel_scope.cancel()
                await _drain(app, acceptor, options.drain_timeout)
                in_order = True
                connections.cancel_scope.cancel()
            finally:
                acceptor.abort()
    if not in_order:
        raise RuntimeError("what serves connections was ended by a cancellation that was not meant for it")


async def _drain(app: AsgiApp, acceptor: Acceptor, seconds: float) -> None:
    deadline = trio.current_time() + seconds
    if isinstance(app, Announcing):
        with ReportErrors(partial(_report, "announce_drain")):
            app.announce_drain()
    idle = acceptor.retire(min(_LINGER_SECONDS, seconds / 5))
    with trio.move_on_after(idle):
        await acceptor.wait_closed()
    if isinstance(app, Drainable):
        await _drain_app(app, seconds - idle)
    with trio.move_on_at(max(deadline, trio.current_time()) + _LAST_WORDS_SECONDS):
        await acceptor.wait_closed()


async def _drain_app(app: Drainable, seconds: float) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_after_last_words, nursery.cancel_scope, seconds)
        with ReportErrors(partial(_report, "drain")):
            await app.drain(seconds)
        nursery.cancel_scope.cancel()


async def _cancel_after_last_words(scope: trio.CancelScope, seconds: float) -> None:
    """Count the time for last words from when the other one is over: to a process that was stopped both may be over at once."""
    await trio.sleep(seconds)
    await trio.sleep(_LAST_WORDS_SECONDS)
    scope.cancel()


def _report(name: str, failure: BaseException) -> None:
    _logger.error(
        "the application's %s raised; its connections are closed all the same", name, exc_info=failure
    )
