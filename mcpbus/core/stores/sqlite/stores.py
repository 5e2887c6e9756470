"""An event store and a task store in an SQLite file: they outlive the process, and cost no service."""

import math
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import trio

from mcpbus.core.stores.protocol import Replay, TaskClaimedError
from mcpbus.core.stores.sqlite.file import SqliteFile
from mcpbus.core.stores.sqlite.schema import TableSchema, naming, open_file
from mcpbus.core.tasks.record import TaskRecord, TaskStatus
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_positive

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def _move_events(connection: sqlite3.Connection) -> None:
    """Keep as batches of one what was kept as one row for each event."""
    connection.create_function("as_batch", 1, lambda data: _encode([data]))
    connection.execute(
        "INSERT OR IGNORE INTO batches (session, stream, first, items, size, final, stored, events)"
        " SELECT session, stream, number, 1, length(data), final, stored, as_batch(data) FROM events ORDER BY position"
    )
    connection.execute("DROP TABLE events")


_EVENTS = TableSchema(
    1,
    "batches",
    """
CREATE TABLE IF NOT EXISTS batches (
    position INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    stream TEXT NOT NULL,
    first INTEGER NOT NULL,
    items INTEGER NOT NULL,
    size INTEGER NOT NULL,
    final INTEGER NOT NULL,
    stored REAL NOT NULL,
    events BLOB NOT NULL,
    UNIQUE (session, stream, first)
)
""",
    {"events": _move_events},
)
"""What was appended at once is one row: one for each event takes five times as long. There is no index by age: it is
that of positions, as long as the clock is right."""

_TASKS = TableSchema(
    1,
    "tasks",
    """
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
""",
)

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

_Batch: TypeAlias = tuple[str, str, int, Sequence[bytes], bool]
"""Session and stream, number of the first event, events, and whether the last one ends the stream."""

_KEEP: Final = "INSERT INTO batches (session, stream, first, items, size, final, stored, events) VALUES "
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?)"

_BUSY_MS: Final = 100
"""For how long a statement waits for another process that has the file: live streams wait with it."""

_AT_ONCE: Final = 1_000
"""So many batches go at most before it is another statement's turn, however many are to go: others wait for that."""


@explained
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

    Raises:
        sqlite3.OperationalError: The file cannot be used; a newer mcpbus has written it, or an older one and another process has it open.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_items: int = 1_000_000,
        max_bytes: int = 1024 * 1024 * 1024,
        max_age: float = 24 * 3600.0,
    ) -> None:
        check_positive(type(self).__name__, max_items=max_items, max_bytes=max_bytes, max_age=max_age)
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._connection = open_file(path, _EVENTS, ["journal_mode=WAL", "synchronous=NORMAL"], timeout=5.0)
        try:
            with naming(path):
                self._items, self._bytes = self._measure()
        except BaseException:
            self._connection.close()  # nobody gets a store that could be closed
            raise
        self._oldest = -math.inf  # when the oldest batch came that is there, or one before it
        self._connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        self._file = SqliteFile(self._connection, path)

    def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> Awaitable[None]:
        """See `EventStore.append`."""
        return self._file.run_together(self._append, (session, stream, first, events, final))

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

    def _append(self, batches: Sequence[_Batch]) -> None:
        """Keep what several appends brought, in one transaction: its end takes longer than a few events do.

        As a rule that is a single statement. While one runs, other threads run too, and its end waits for them.
        """
        now = time.time()
        cutoff, oldest = now - self._max_age, self._oldest
        items, size = self._items, self._bytes
        values: list[object] = []
        for session, stream, first, events, final in batches:
            length = sum(map(len, events))
            items, size = items + len(events), size + length
            values += session, stream, first, len(events), length, final, now, _encode(events)
        keep = _KEEP + ", ".join([_ROW] * len(batches))
        if items <= self._max_items and size <= self._max_bytes and oldest >= cutoff:
            self._connection.execute(keep, values)
        else:
            with self._transaction():
                self._connection.execute(keep, values)
                items, size, oldest = self._evict(cutoff, items, size)
        self._items, self._bytes, self._oldest = items, size, oldest

    def _replay(self, session: str, stream: str, after: int) -> Replay | None:
        own = "session = ? AND stream = ?"
        rows = self._connection.execute(
            f"SELECT first, events, final FROM batches WHERE {own} AND stored >= ? AND first >="  # noqa: S608 - written above
            f" (SELECT coalesce(max(first), 0) FROM batches WHERE {own} AND first <= ?) ORDER BY first",
            (session, stream, time.time() - self._max_age, session, stream, after),
        ).fetchall()
        if not rows or rows[0][0] > after + 1:
            return None
        events: list[bytes] = []
        for first, batch, _ in rows:
            if first != rows[0][0] + len(events):
                return None  # where the clock was set back, some in between are too old
            events += _decode(batch)
        seen = after - rows[0][0] + 1
        return None if seen > len(events) else Replay(events[seen:], bool(rows[-1][2]))

    def _forget_some(self, session: str) -> bool:
        """Drop some of a session's events, and return whether there may be more."""
        with self._transaction():
            # By the index that the uniqueness of events needs.
            gone = self._connection.execute(
                "DELETE FROM batches WHERE position IN (SELECT position FROM batches WHERE session = ? LIMIT ?)"
                " RETURNING items, size",
                (session, _AT_ONCE),
            ).fetchall()
        self._items -= sum([items for items, _ in gone])
        self._bytes -= sum([size for _, size in gone])
        return len(gone) == _AT_ONCE

    def _evict(self, cutoff: float, items: int, size: int) -> tuple[int, int, float]:
        """Drop the oldest events until the bounds hold, the newest stay.

        Returns:
            How many are left, their bytes, and since when there are any, or before that.
        """
        last = left = None
        since = -math.inf  # as it is if there are more to drop
        oldest = self._connection.execute(
            "SELECT position, items, size, stored FROM batches ORDER BY position LIMIT ?", (_AT_ONCE,)
        )
        for position, its_items, its_size, stored in oldest:
            if stored >= cutoff and items - its_items < self._max_items and size - its_size < self._max_bytes:
                left, since = position, stored
                break
            last, items, size = position, items - its_items, size - its_size
        oldest.close()
        if last is not None:
            self._connection.execute("DELETE FROM batches WHERE position <= ?", (last,))
        if left is not None:
            items, size = self._trim(left, items, size)
        elif self._connection.execute("SELECT position FROM batches LIMIT 1").fetchone() is None:
            items = size = 0  # another process has the file too, and has dropped what is counted here
        return items, size, since

    def _trim(self, position: int, items: int, size: int) -> tuple[int, int]:
        """Drop the first events of the oldest batch until the bounds hold; return how many are left, and their bytes."""
        if items <= self._max_items and size <= self._max_bytes:
            return items, size
        events = self._connection.execute(
            "SELECT events FROM batches WHERE position = ?", (position,)
        ).fetchone()
        before = items
        kept = deque(_decode(events[0]))
        while items > self._max_items or size > self._max_bytes:
            items, size = items - 1, size - len(kept.popleft())
        if not kept:  # its last event was too long, and begins with the number of the next batch's first one
            self._connection.execute("DELETE FROM batches WHERE position = ?", (position,))
            return items, size
        self._connection.execute(
            "UPDATE batches SET first = first + ?, items = ?, size = ?, events = ? WHERE position = ?",
            (before - items, len(kept), sum(map(len, kept)), _encode(list(kept)), position),
        )
        return items, size

    def _measure(self) -> tuple[int, int]:
        items, size = self._connection.execute("SELECT total(items), total(size) FROM batches").fetchone()
        return int(items), int(size)

    def _transaction(self) -> sqlite3.Connection:
        # As a context manager it commits, or rolls back what failed.
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection


@explained
class SqliteTaskStore:
    """Keeps tasks in an SQLite file.

    The file is locked while the store is open, since two processes on one file would take each other's running tasks
    for lost; several buses of one process share a store. Statements run in a worker thread, one at a time; each is on the disk when it returns. One that is cancelled goes on in
    its thread, before those that come later.

    Args:
        path: The file; made if it is not there.

    Raises:
        sqlite3.OperationalError: The file cannot be used, another store has it, or a newer mcpbus has written it.
    """

    def __init__(self, path: str | Path) -> None:
        # Unlike an event log, which may lose its end, a task must be there once its client was told of it.
        pragmas = ["locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"]
        self._connection = open_file(path, _TASKS, pragmas, timeout=1.0)
        self._file = SqliteFile(self._connection, path)
        self._path = path
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
            raise TaskClaimedError

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
        with naming(self._path):
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
