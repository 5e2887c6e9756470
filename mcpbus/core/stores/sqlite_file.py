"""An SQLite file whose statements run in worker threads, one at a time, and that is closed when none runs."""

import sqlite3
import threading
from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class SqliteFile:
    """A connection, and the turns at it.

    Args:
        connection: Made with `check_same_thread=False`. It is this object's to close.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._turn = trio.CapacityLimiter(1)
        # SQLite crashes the process when a connection is closed between two steps of another thread's statement. The
        # limiter does not keep that from happening: a thread that is abandoned holds it until it ends, but whoever
        # closes is no task that could wait for it.
        self._in_use = threading.Lock()

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function that uses the connection, in a worker thread.

        One that is cancelled goes on in its thread, before those that come later: it is not known then what became of it.

        Raises:
            sqlite3.ProgrammingError: The file is closed.
        """
        return await trio.to_thread.run_sync(self._use, function, limiter=self._turn, abandon_on_cancel=True)

    def close(self) -> None:
        """Close the file, when the function that runs now, if one does, has returned. It cannot be used any more."""
        with self._in_use:
            self.connection.close()

    def _use(self, function: Callable[[], T]) -> T:
        with self._in_use:
            return function()
