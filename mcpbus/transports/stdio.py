"""stdio: newline-delimited messages on the process's own standard input and output.

While the server runs, standard output belongs to the protocol alone: what the program prints goes to standard
error instead.

The end of the input says that no more requests come, and not that nobody reads: what is in flight is answered first, unless
standard output was hung up as well.
"""

import logging
import os
import select
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

import trio

from mcpbus.core.concurrency import background
from mcpbus.core.hub import Hub
from mcpbus.core.limits import DRAIN_SECONDS
from mcpbus.protocol.principals import STDIO
from mcpbus.transports.lines import run_channel

_log = logging.getLogger("mcpbus")

_PIECE_BYTES: Final = 64 * 1024

_LAST_WORDS_SECONDS: Final = 0.25
"""After the drain: for a client that is slow to read what was said last."""

_STANDARD: Final = ("input", "output")


class StdioClosedError(Exception):
    """Standard input or output was closed when the process began, so that nobody can be served there."""


async def run_stdio(
    bus: Hub,
    *,
    shutdown: trio.Event | None = None,
    drain_timeout: float = DRAIN_SECONDS,
) -> bool:
    """Serve the process's standard input and output until the input ends and what is in flight is answered; see `Bus.stdio`.

    Args:
        bus: The bus to attach to.
        shutdown: Drains the bus, and ends this; after the end of the input at once.
        drain_timeout: How long requests may go on then, and after the end of the input.

    Returns:
        Whether the client took all that was said.

    Raises:
        StdioClosedError: Standard input or output was closed when the process began.
    """
    whole = False
    draining = trio.CancelScope(relative_deadline=drain_timeout)
    with _take_over() as (stdin, stdout):
        source, sink = _open(stdin), _open(stdout)
        async with source, sink, background() as nursery:
            nursery.start_soon(_cancel_when_hung_up, draining, sink)
            if shutdown is not None:
                nursery.start_soon(_drain, bus, shutdown, drain_timeout, draining, nursery.cancel_scope)
            whole = await run_channel(bus, _read(source), sink.send_all, None, STDIO, draining=draining)
            nursery.cancel_scope.cancel()
    if not whole:
        _log.error(
            "the client did not take all that was said to it: it has closed standard output, or does not read it"
        )
    return whole


async def _drain(
    bus: Hub, shutdown: trio.Event, seconds: float, draining: trio.CancelScope, serving: trio.CancelScope
) -> None:
    await shutdown.wait()
    draining.cancel()
    await bus.drain(seconds)
    serving.deadline = trio.current_time() + _LAST_WORDS_SECONDS


async def _cancel_when_hung_up(
    draining: trio.CancelScope, sink: "trio.lowlevel.FdStream | _Blocking"
) -> None:
    if isinstance(sink, _Blocking):
        return
    await trio.lowlevel.wait_readable(sink.fileno())
    # A socket may be readable for other reasons, such as that it is the input too, which has ended.
    state = select.poll()
    state.register(sink.fileno(), 0)
    if state.poll(0):
        draining.cancel()


async def _read(source: "trio.lowlevel.FdStream | _Blocking") -> AsyncIterator[bytes]:
    """Yield what comes, to the end of the input."""
    with suppress(trio.BrokenResourceError):  # a terminal that was hung up, say
        while piece := await source.receive_some(_PIECE_BYTES):
            yield piece


@contextmanager
def _take_over() -> Iterator[tuple[int, int]]:
    """Lend out descriptors of standard input and output; meanwhile 1 is standard error and 0 is empty."""
    # Not the descriptors: the number of one that is closed may be somebody else's by now.
    for name, file in zip(_STANDARD, (sys.__stdin__, sys.__stdout__), strict=True):
        if file is None:
            raise StdioClosedError(
                f"standard {name} is closed, and a server on stdio needs both: start it with pipes, or serve it over HTTP"
            )
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null if sys.__stderr__ is None else 2, 1)
    os.close(null)
    sys.stdout.flush()  # what the program has printed before, which no client could read, goes to standard error
    try:
        yield stdin, stdout
    finally:
        with suppress(ValueError):  # a handler has closed it
            sys.stdout.flush()
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.close(stdin)
        os.close(stdout)


def _open(descriptor: int) -> "trio.lowlevel.FdStream | _Blocking":
    """Open a copy of a descriptor: without threads where the system can, and that disturbs nobody."""
    copy = os.dup(descriptor)
    if not hasattr(trio.lowlevel, "FdStream"):  # as on Windows
        return _Blocking(copy)
    status = os.fstat(copy)
    pipe = stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
    # Non-blocking mode belongs to the open file, not to the descriptor: standard error must not share it.
    if pipe and (sys.__stderr__ is None or not os.path.samestat(status, os.fstat(2))):
        return trio.lowlevel.FdStream(copy)
    return _Blocking(copy)


class _Blocking:
    """A file or a terminal, read and written in worker threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def receive_some(self, max_bytes: int) -> bytes:
        try:
            return await trio.to_thread.run_sync(os.read, self._descriptor, max_bytes, abandon_on_cancel=True)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def send_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                written = await trio.to_thread.run_sync(
                    os.write, self._descriptor, view, abandon_on_cancel=True
                )
            except OSError as error:
                raise trio.BrokenResourceError from error
            view = view[written:]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # A thread may still be reading; the descriptor goes with the process.
        await trio.lowlevel.checkpoint()
