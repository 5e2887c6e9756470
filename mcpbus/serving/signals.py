"""How a process is told to stop."""

import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def shutdown_on_signals() -> AsyncGenerator[trio.Event]:
    """Turn SIGTERM and SIGINT into a shutdown: the first one sets the event, a second one cancels the block.

    For a program whose main thread runs this trio loop; a library does not take its host's signals.
    """
    shutdown = trio.Event()

    async def obey(signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            if shutdown.is_set():
                nursery.cancel_scope.cancel()
            shutdown.set()

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(obey, signals)
            yield shutdown
            nursery.cancel_scope.cancel()
