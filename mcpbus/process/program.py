"""A server as a program of its own: its signals, what it says of itself, and how it keeps its memory."""

import gc
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sniffio import AsyncLibraryNotFoundError, current_async_library

from mcpbus.core.concurrency import background
from mcpbus.core.limits import DRAIN_SECONDS
from mcpbus.process.loop_monitor import report_blocked_loop
from mcpbus.process.shutdown_report import report_slow_shutdown
from mcpbus.process.stderr import ANNOUNCE, log_without_blocking
from mcpbus.serving.signals import shutdown_on_signals
from mcpbus.transports.stdio import StdioClosedError

if TYPE_CHECKING:
    from mcpbus.workers.worker import Worker

# A request makes some hundred objects and leaves none to the garbage collector, which by default looks for some at
# every 700. With these thresholds, and what was loaded set aside, a short call costs a sixth less processor time.
_THRESHOLDS = (10_000, 20, 20)


LOADING: ContextVar[str | None] = ContextVar("mcpbus loading", default=None)
"""The file or module that the command line imports a server from, while it does."""


def check_startable() -> None:
    """Refuse to run a server as a program where that would never return, or stop another one's loop.

    Raises:
        RuntimeError: It is called while its file is imported, or within a program of trio or asyncio; the message says what to write.
    """
    if (place := LOADING.get()) is not None:
        raise RuntimeError(
            f"server.run() is called while {place} is imported: write if __name__ == '__main__': above it"
        )
    try:
        library = current_async_library()
    except AsyncLibraryNotFoundError:
        return
    if library == "trio":
        raise RuntimeError("server.run() starts trio itself: in a trio program write await server.serve()")
    raise RuntimeError(
        f"server.run() starts trio itself, and {library} runs here, which would stand still meanwhile: serve "
        f"mcpbus.asyncio.asgi(server), or call server.run() where no loop runs"
    )


async def serve_until_signalled(
    name: Callable[[], str],
    serve: Callable[..., Any],
    worker: "Worker | None" = None,
    drain_timeout: float = DRAIN_SECONDS,
) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C, and say where on standard error; a second signal does not wait for the drain.

    For a program whose main thread this is: it takes the process's signals, tunes its garbage collector, writes the log to
    standard error without waiting for its reader, and says in it what blocks the loop, or keeps the program from its end.

    Args:
        name: Tells what is served, once it is.
        serve: `Server.serve` or the like, with its other arguments.
        worker: What this process does as one of several, if it is one: another one says where they serve, and ends it.
        drain_timeout: How long that takes to end.
    """
    # Before anybody looks: of a new installation they are compiled first, which takes seconds.
    for each in ("mcpbus.serving.run", "mcpbus.transports.asgi"):
        import_module(each)
    with log_without_blocking(), report_blocked_loop():
        async with (
            shutdown_on_signals() as shutdown,
            report_slow_shutdown(shutdown, drain_timeout),
            nullcontext(_say_where) if worker is None else worker.attend(shutdown) as say_where,
            background() as nursery,
        ):
            urls = await nursery.start(partial(serve, shutdown=shutdown))
            await say_where(name(), urls)
            _tune_collector()


async def _say_where(name: str, urls: Sequence[str]) -> None:
    for url in urls:
        ANNOUNCE.get()(f"{name} is served at {url} (Ctrl-C to stop)")


async def until_input_ends(
    serve: Callable[..., Awaitable[bool]], drain_timeout: float = DRAIN_SECONDS
) -> None:
    """Serve standard input and output until the input ends, or a signal comes.

    Both end what goes on by a drain; a signal that comes meanwhile does not wait for it.

    For a program whose main thread this is: it takes the process's signals, writes the log to standard error without waiting for
    its reader, and says in it what blocks the loop, or after a signal keeps the program from its end.

    Args:
        serve: `Bus.stdio` or the like, with its other arguments.
        drain_timeout: How long that takes to end.

    Raises:
        SystemExit: With a status other than 0: standard input or output is closed, or did not take all that was said.
    """
    try:
        with log_without_blocking(), report_blocked_loop():
            async with shutdown_on_signals() as shutdown, report_slow_shutdown(shutdown, drain_timeout):
                whole = await serve(shutdown=shutdown)
    except StdioClosedError as closed:
        sys.exit(str(closed))
    if not whole:
        sys.exit(1)


def _tune_collector() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
