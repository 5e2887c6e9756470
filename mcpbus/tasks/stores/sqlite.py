"""A task store in an SQLite file: it survives a restart, and costs no service."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from mcpbus.stores.sqlite_file import SqliteFile
from mcpbus.tasks.record import TaskRecord, TaskStatus

_SCHEMA = """
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


_LOAD = "SELECT id, owner, status, message, created, updated, ttl_ms, poll_ms, size, bus FROM tasks ORDER BY created"


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
            self._connection.execute(_SCHEMA)
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
        await self._file.run(
            partial(self._execute, "REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        )

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

    async def leave(self, bus: str) -> None:
        """See `TaskStore.leave`."""
        await trio.lowlevel.checkpoint()
        self._open.discard(bus)

    async def load(self) -> Sequence[TaskRecord]:
        """Return all tasks that are kept."""
        rows = await self._file.run(partial(self._execute, _LOAD))
        return [TaskRecord(row[0], row[1], TaskStatus(row[2]), *row[3:]) for row in rows]

    def close(self) -> None:
        """Close the file, when the statement that runs now has ended, and give up its lock. The store cannot be used any more."""
        self._file.close()

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()
