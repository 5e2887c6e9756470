"""An event store and a task store in an SQLite file: they outlive the process, and cost no service."""

import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import trio

from mcpbus.core.stores.protocol import Replay, TaskTakenError
from mcpbus.core.stores.sqlite_file import SqliteFile
from mcpbus.core.tasks.record import TaskRecord, TaskStatus

_EVENTS = """
CREATE TABLE IF NOT EXISTS events (
    position INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    final INTEGER NOT NULL,
    stored REAL NOT NULL,
    UNIQUE (session, stream, number)
);
DROP INDEX IF EXISTS events_by_age;
"""
"""Each index makes a row cost half as much again, so there is none by age: it is that of positions, as long as the clock is right."""

_TASKS = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY,
    owner BLOB NOT NULL,
    status TEXT NOT NULL,
    message TEXT,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    ttl_ms INTEGER NOT NULL,
    poll_ms INTEGER NOT NULL,
    size INTEGER NOT NULL,
    payload BLOB,
    bus TEXT NOT NULL
)
"""

_PUT_TASK = """
INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, message = excluded.message, updated = excluded.updated,
    ttl_ms = excluded.ttl_ms, size = excluded.size, payload = excluded.payload
WHERE bus = excluded.bus
RETURNING id
"""

_LOAD = "SELECT id, owner, status, message, created, updated, ttl_ms, poll_ms, size, bus FROM tasks"
_LOAD_TASKS = f"{_LOAD} ORDER BY created"
_LOAD_TASK = f"{_LOAD} WHERE id = ?"

_Event: TypeAlias = tuple[str, str, int, bytes, bool]
"""Session and stream, number and data of an event, and whether it is the last of its stream."""

_BUSY_MS: Final = 100
"""For how long a statement waits for another process that has the file: live streams wait with it."""

_AT_ONCE: Final = 1_000
"""So many events go at most before it is another statement's turn, however many are to go: others wait for that."""


class SqliteEventStore:
    """Keeps events in an SQLite file, the newest of them, within bounds over all streams together.

    Its statements run in a worker thread, one at a time. One that is cancelled goes on in its thread: it is not known then
    whether it is kept, and those that come later wait for it. What comes while the thread is at work is kept together, in one
    transaction. It outlives the process once it is kept; a machine that loses its power may lose the last of it.

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
        self._connection.executescript(_EVENTS)
        self._items, self._bytes = self._measure()
        self._connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        self._file = SqliteFile(self._connection)

    async def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> None:
        """See `EventStore.append`."""
        last = first + len(events) - 1
        await self._file.run_together(
            self._append,
            [
                (session, stream, number, data, final and number == last)
                for number, data in enumerate(events, first)
            ],
        )

    async def replay(self, session: str, stream: str, after: int) -> Replay | None:
        """See `EventStore.replay`."""
        return await self._file.run(partial(self._replay, session, stream, after))

    async def forget(self, session: str) -> None:
        """See `EventStore.forget`. It costs what that session stored, and others have their turn meanwhile."""
        while await self._file.run(partial(self._forget_some, session)):
            pass

    def close(self) -> None:
        """Close the file, when the statement that runs now has ended. The store cannot be used any more."""
        self._file.close()

    # -- in the thread ---------------------------------------------------------------------------

    def _append(self, appends: Sequence[Sequence[_Event]]) -> None:
        """Keep what several appends brought, in one transaction: its end takes longer than a few events do."""
        now = time.time()
        rows = [(*event, now) for append in appends for event in append]
        with self._transaction():
            self._connection.executemany(
                "INSERT INTO events (session, stream, number, data, final, stored) VALUES (?, ?, ?, ?, ?, ?)",
                rows,
            )
            counts = self._evict(
                now, self._items + len(rows), self._bytes + sum([len(row[3]) for row in rows])
            )
        self._items, self._bytes = counts

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

    def _forget_some(self, session: str) -> bool:
        """Drop some of a session's events, and return whether there may be more."""
        with self._transaction():
            # By the index that the uniqueness of events needs.
            gone = self._delete("SELECT position FROM events WHERE session = ? LIMIT ?", session, _AT_ONCE)
        self._items, self._bytes = self._items - len(gone), self._bytes - sum(gone)
        return len(gone) == _AT_ONCE

    def _evict(self, now: float, items: int, size: int) -> tuple[int, int]:
        """Drop the oldest events until the bounds hold, the newest stay; return how many are left, and their bytes."""
        evicted, cutoff = 0, now - self._max_age
        gone: list[int] = []
        oldest = self._connection.execute("SELECT stored FROM events ORDER BY position LIMIT 1").fetchone()
        if oldest is not None and oldest[0] < cutoff:
            old = "SELECT position, stored FROM events ORDER BY position LIMIT ?"
            gone = self._delete(f"SELECT position FROM ({old}) WHERE stored < ?", _AT_ONCE, cutoff)  # noqa: S608 - written above
        while True:
            evicted += len(gone)
            items, size = items - len(gone), size - sum(gone)
            if evicted >= _AT_ONCE or (items <= self._max_items and size <= self._max_bytes):
                return items, size
            most = min(max(1, items - self._max_items), _AT_ONCE)
            gone = self._delete("SELECT position FROM events ORDER BY position LIMIT ?", most)
            if not gone:
                return 0, 0  # another process has the file too, and has dropped what is counted here

    def _delete(self, which: str, *values: object) -> list[int]:
        """Delete the events at those positions, and return their sizes."""
        statement = f"DELETE FROM events WHERE position IN ({which}) RETURNING length(data)"  # noqa: S608 - written above
        return [length for (length,) in self._connection.execute(statement, values).fetchall()]

    def _measure(self) -> tuple[int, int]:
        items, total = self._connection.execute("SELECT count(*), total(length(data)) FROM events").fetchone()
        return items, int(total)

    def _transaction(self) -> sqlite3.Connection:
        # As a context manager it commits, or rolls back what failed.
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection


class SqliteTaskStore:
    """Keeps tasks in an SQLite file.

    The file is locked while the store is open, since two processes on one file would take each other's running tasks
    for lost; several buses of one process share a store. Statements run in a worker thread, one at a time; each is on the disk when it returns. One that is cancelled goes on in
    its thread, before those that come later.

    Args:
        path: The file; made if it is not there.

    Raises:
        sqlite3.OperationalError: The file cannot be used, or another store has it.
    """

    def __init__(self, path: str | Path) -> None:
        self._connection = sqlite3.connect(path, timeout=1.0, check_same_thread=False, isolation_level=None)
        try:
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode=WAL")
            # Unlike an event log, which may lose its end, a task must be there once its client was told of it.
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute(_TASKS)
        except BaseException:
            self._connection.close()
            raise
        self._file = SqliteFile(self._connection)
        self._open: set[str] = set()

    async def put(self, record: TaskRecord, payload: bytes | None) -> None:
        """See `TaskStore.put`."""
        row = (
            record.id,
            record.owner,
            record.status.value,
            record.message,
            record.created,
            record.updated,
            record.ttl_ms,
            record.poll_ms,
            record.size,
            payload,
            record.bus,
        )
        if not await self._file.run(partial(self._execute, _PUT_TASK, row)):
            raise TaskTakenError

    async def payload(self, task_id: str) -> bytes | None:
        """See `TaskStore.payload`."""
        rows = await self._file.run(
            partial(self._execute, "SELECT payload FROM tasks WHERE id = ?", (task_id,))
        )
        return rows[0][0] if rows else None

    async def delete(self, task_id: str) -> None:
        """See `TaskStore.delete`."""
        await self._file.run(partial(self._execute, "DELETE FROM tasks WHERE id = ?", (task_id,)))

    async def take_up(self, bus: str) -> Sequence[TaskRecord]:
        """See `TaskStore.take_up`."""
        others = sorted(self._open)
        self._open.add(bus)
        places = ", ".join("?" * len(others))
        statement = f"UPDATE tasks SET bus = ? WHERE bus NOT IN ({places})"  # noqa: S608 - question marks
        await self._file.run(partial(self._execute, statement, (bus, *others)))
        return [record for record in await self.load() if record.bus == bus]

    async def claim(self, task_id: str, ended: str, bus: str) -> TaskRecord | None:
        """See `TaskStore.claim`."""
        statement = "UPDATE tasks SET bus = ? WHERE id = ? AND bus = ?"
        await self._file.run(partial(self._execute, statement, (bus, task_id, ended)))
        rows = await self._file.run(partial(self._execute, _LOAD_TASK, (task_id,)))
        return _record(rows[0]) if rows else None

    async def leave(self, bus: str) -> None:
        """See `TaskStore.leave`."""
        await trio.lowlevel.checkpoint()
        self._open.discard(bus)

    async def load(self) -> Sequence[TaskRecord]:
        """Return all tasks that are kept."""
        rows = await self._file.run(partial(self._execute, _LOAD_TASKS))
        return [_record(row) for row in rows]

    def close(self) -> None:
        """Close the file, when the statement that runs now has ended, and give up its lock. The store cannot be used any more."""
        self._file.close()

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()


def _record(row: Sequence[Any]) -> TaskRecord:
    return TaskRecord(row[0], row[1], TaskStatus(row[2]), *row[3:])
