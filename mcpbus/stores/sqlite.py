"""An event store in an SQLite file: it outlives the connection, and costs no service."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from mcpbus.stores.protocol import Replay

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    final INTEGER NOT NULL,
    stored REAL NOT NULL,
    UNIQUE (session, stream, number)
);
CREATE INDEX IF NOT EXISTS events_by_age ON events (stored);
"""


class SqliteEventStore:
    """Keeps events in an SQLite file, the newest of them, within bounds over all streams together.

    Its statements run in a worker thread, one at a time.

    Args:
        path: The file; made if it is not there.
        max_items: How many events.
        max_bytes: How many bytes of events.
        max_age: For how many seconds each.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_items: int = 1_000_000,
        max_bytes: int = 1024 * 1024 * 1024,
        max_age: float = 24 * 3600.0,
    ) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)
        self._items, self._bytes = self._measure()
        self._turn = trio.CapacityLimiter(1)

    async def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> None:
        """See `EventStore.append`."""
        await self._run(partial(self._append, session, stream, first, events, final=final))

    async def replay(self, session: str, stream: str, after: int) -> Replay | None:
        """See `EventStore.replay`."""
        return await self._run(partial(self._replay, session, stream, after))

    async def forget(self, session: str) -> None:
        """See `EventStore.forget`."""
        await self._run(partial(self._forget, session))

    def close(self) -> None:
        """Close the file. The store cannot be used any more."""
        self._connection.close()

    async def _run(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._turn)

    def _append(self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool) -> None:
        now = time.time()
        last = first + len(events) - 1
        rows = [
            (session, stream, number, data, final and number == last, now)
            for number, data in enumerate(events, first)
        ]
        with self._transaction():
            self._connection.executemany(
                "INSERT INTO events (session, stream, number, data, final, stored) VALUES (?, ?, ?, ?, ?, ?)",
                rows,
            )
            self._items += len(events)
            self._bytes += sum(map(len, events))
            self._evict(now)

    def _replay(self, session: str, stream: str, after: int) -> Replay | None:
        cutoff = time.time() - self._max_age
        rows = self._connection.execute(
            "SELECT number, data, final FROM events WHERE session = ? AND stream = ? AND number >= ? AND stored >= ?"
            " ORDER BY number",
            (session, stream, after, cutoff),
        ).fetchall()
        # Event `after` itself proves that nothing between was dropped; for a start from the top, event 1 does.
        if not rows or rows[0][0] > max(after, 1):
            return None
        return Replay([data for number, data, _ in rows if number > after], bool(rows[-1][2]))

    def _forget(self, session: str) -> None:
        with self._transaction():
            self._connection.execute("DELETE FROM events WHERE session = ?", (session,))
            self._items, self._bytes = self._measure()

    def _evict(self, now: float) -> None:
        """Drop the oldest events until the bounds hold, the newest stay."""
        old = self._connection.execute(
            "DELETE FROM events WHERE stored < ? RETURNING length(data)", (now - self._max_age,)
        ).fetchall()
        self._count_out(old)
        while self._items > self._max_items or self._bytes > self._max_bytes:
            oldest = self._connection.execute(
                "DELETE FROM events WHERE position = (SELECT min(position) FROM events) RETURNING length(data)"
            ).fetchall()
            self._count_out(oldest)

    def _count_out(self, sizes: list[tuple[int]]) -> None:
        self._items -= len(sizes)
        self._bytes -= sum(size for (size,) in sizes)

    def _measure(self) -> tuple[int, int]:
        items, total = self._connection.execute("SELECT count(*), total(length(data)) FROM events").fetchone()
        return items, int(total)

    def _transaction(self) -> sqlite3.Connection:
        # As a context manager it commits, or rolls back what failed.
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection
