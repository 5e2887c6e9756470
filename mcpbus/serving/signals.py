"""How a process is told to stop."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final

import trio

_NAMES: Final = ("SIGTERM", "SIGINT", "SIGHUP")


@asynccontextmanager
async def shutdown_on_signals() -> AsyncGenerator[trio.Event]:
    """Turn SIGTERM, SIGINT or SIGHUP into a shutdown: the first one sets the event, a second one ends the process at once.

    Give the event to what serves, such as `Bus.serve` or `Bus.stdio`, and leave the block when that has returned. Once the
    event is set these signals do again what they do by themselves, so that nothing delays the second one: no handler that
    shields itself from cancellation, none that blocks the loop. The exit status is then the signal's own.

    For a program whose main thread runs this trio loop; a library does not take its host's signals. After the block they do
    what they did before. SIGHUP is left alone where it is ignored, as under ``nohup``.

    Raises:
        ValueError: This is not the main thread.
    """
    shutdown = trio.Event()
    token = trio.lowlevel.current_trio_token()
    before = {signum: handler for signum in _signals() if (handler := signal.getsignal(signum)) is not None}
    asked = False

    def obey(signum: int, _: FrameType | None) -> None:
        nonlocal asked
        if asked:
            exit_by_signal(signum)
        asked = True
        token.run_sync_soon(begin)

    def begin() -> None:
        shutdown.set()
        if os.getpid() != 1:  # to the first process of a container the kernel does nothing by itself
            for signum in before:
                signal.signal(signum, signal.SIG_DFL)

    try:
        for signum in before:
            signal.signal(signum, obey)
        yield shutdown
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def exit_by_signal(signum: int) -> None:
    """End the process as the signal does by itself, or with the exit status that a shell makes of that."""
    signal.signal(signum, signal.SIG_DFL)
    signal.raise_signal(signum)
    os._exit(128 + signum)


def _signals() -> list[signal.Signals]:
    there = [signal.Signals[name] for name in _NAMES if hasattr(signal, name)]
    return [each for each in there if each.name != "SIGHUP" or signal.getsignal(each) != signal.SIG_IGN]
