"""The log of a program on its standard error, without ever waiting for whoever reads that.

A pipe that nobody reads takes 64 KiB, and then holds up who writes to it: one line of the log, in the thread of the loop, and no
client is served any more. Here a thread writes. It uses the descriptor itself and no lock of `logging` or `sys.stderr`, because
it may be held up for ever, and the process has to end all the same. (So it has no use for `logging.handlers.QueueListener`, which
calls the handlers, and whose end is waited for.)
"""

import errno
import io
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

from mcpbus.protocol.printable import printable

_MOST_WAITING: Final = 1_000
"""Entries that wait to be written; then newer ones are dropped, and counted."""

_LAST_WORDS_SECONDS: Final = 1.0
"""At the end: for what waits to be written."""

_FULL: Final = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}
"""Why a file takes no more now, and may take it later."""


def _print(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201 - a program says so


ANNOUNCE: ContextVar[Callable[[str], object]] = ContextVar("mcpbus announce", default=_print)
"""Says where a program serves: a line for people, unless all that is on standard error is to be entries of the log."""


@contextmanager
def log_without_blocking() -> Iterator[None]:
    """Have log handlers that write to standard error wait for nobody, while the block lasts. For programs.

    Such handlers are those of `logging.basicConfig`, and the one of last resort. Others are left alone.
    """
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # it is closed, or somebody's double
        yield
        return
    aside = NonblockingStderr(descriptor, sys.stderr.encoding)
    original, last_resort = sys.stderr, logging.lastResort
    moved = [handler for handler in _stream_handlers() if handler.stream is original]
    for handler in moved:
        handler.setStream(aside)
    if last_resort is not None:
        logging.lastResort = logging.StreamHandler(aside)
        logging.lastResort.setLevel(last_resort.level)
    try:
        yield
    finally:
        for handler in moved:
            handler.setStream(original)
        logging.lastResort = last_resort
        aside.close()


class NonblockingStderr(io.TextIOBase):
    """A text stream that never holds anybody up.

    Args:
        descriptor: Where to write.
        encoding: That of the text.

    Attributes:
        dropped: How many entries were not taken, because too many waited.
    """

    def __init__(self, descriptor: int, encoding: str) -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self.dropped = 0
        self._thread = Thread(target=self._run, name="mcpbus log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Take an entry, which may be dropped."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(text)
        else:
            self.dropped += 1
        return len(text)

    def close(self) -> None:
        """Wait until all is written, though not for long."""
        self._waiting.put(None)
        self._thread.join(_LAST_WORDS_SECONDS)
        super().close()

    def _run(self) -> None:
        told, failed, broken_off = 0, 0, ""
        while (text := self._waiting.get()) is not None:
            if told < (lost := self.dropped + failed):
                text = f"{broken_off}({lost - told} entries of the log are not here: they could not be written)\n{text}"
            data = text.encode(self._encoding, "backslashreplace")
            try:
                left = self._write(data)
            except OSError:
                return  # nobody can read it any more, or it is something else already
            if left:
                failed += 1
                broken_off = "\n" if left < len(data) else broken_off
            else:
                told, broken_off = lost, ""

    def _write(self, data: bytes) -> int:
        """Write as much of it as there is room for; returns how many bytes are left."""
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # who has the other end of it may have made it so
                select.select([], [self._descriptor], [])
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                break
        return len(data)


def _stream_handlers() -> Iterator["logging.StreamHandler[Any]"]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):
            yield from (each for each in logger.handlers if isinstance(each, logging.StreamHandler))
