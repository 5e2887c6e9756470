"""The table of an SQLite file and its version, which its `user_version` tells: a file of an older build is brought up to date.

One of a newer build is refused. A process that has the file open in an older layout would lose its table, so nobody else may have it then:
of several that come at once, as workers do, each lets go of the file and tries again.
"""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

import attrs

from mcpbus.protocol.private_files import create, restrict

_PAUSE_SECONDS: Final = 0.1
"""How long a process lets go of a file at most that another one has."""


@attrs.frozen
class TableSchema:
    """The table as this build has it.

    Attributes:
        version: Of the layout; one more with each change of it.
        name: Of the table.
        table: The statement that makes the table if it is not there.
        older: By the name of a table of an older layout, what moves its rows to where they are now, and drops it.
    """

    version: int
    name: str
    table: str
    older: Mapping[str, Callable[[sqlite3.Connection], None]] = attrs.field(factory=dict)

    def bring_to(self, connection: sqlite3.Connection) -> None:
        """Have a file's table be this one.

        Raises:
            sqlite3.OperationalError: A newer build has written the file, or another kind of store, or another program; or an older
                build, and somebody else has it open.
        """
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > self.version:
            raise sqlite3.OperationalError(
                f"it has version {version}, and this mcpbus knows version {self.version}; use a newer mcpbus, or another file"
            )
        if version == self.version:
            if self.name not in _tables(connection):
                raise sqlite3.OperationalError(
                    f"it has no table {self.name!r}, so it is another store's; each store needs a file of its own"
                )
            self._check_own(connection)
            return
        with _alone(connection) if self._moves(connection) else nullcontext(), connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(self.table)
            self._check_own(connection)
            for move in self._moves(connection):  # another process may have done it meanwhile
                move(connection)
            connection.execute(f"PRAGMA user_version = {self.version}")

    def _check_own(self, connection: sqlite3.Connection) -> None:
        """Leave alone the table of another program that has the same name: an application's database has its own ``tasks``, say."""
        with closing(sqlite3.connect(":memory:")) as own:
            own.execute(self.table)
            if _columns(connection, self.name) != _columns(own, self.name):
                raise sqlite3.OperationalError(
                    f"its table {self.name!r} is another program's; each store needs a file of its own"
                )

    def _moves(self, connection: sqlite3.Connection) -> list[Callable[[sqlite3.Connection], None]]:
        return [self.older[name] for name in _tables(connection) if name in self.older]


class _HeldError(sqlite3.OperationalError):
    """Somebody else has a file open that is to be brought up to date."""


def open_file(
    path: str | Path, layout: TableSchema, pragmas: Sequence[str], *, timeout: float
) -> sqlite3.Connection:
    """Open a file, made if it is not there, for statements that run in any thread.

    Args:
        path: The file.
        layout: Its table.
        pragmas: What is set before anything is read.
        timeout: For how many seconds it may be another process's.

    Raises:
        sqlite3.OperationalError: It cannot be used. The error names the file and why.
    """
    until = time.monotonic() + timeout
    while True:
        try:
            return _open(path, layout, pragmas, timeout)
        except sqlite3.DatabaseError as error:
            busy = isinstance(error, _HeldError) or _code(error) == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= until:
                raise _unusable(path, error) from error
        time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 - so that they do not meet again


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name the file in what is raised within the block, as where it is damaged: that is found when it is read.

    Raises:
        sqlite3.OperationalError: See `open_file`.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _unusable(path, error) from error


def _unusable(path: str | Path, error: sqlite3.DatabaseError) -> sqlite3.OperationalError:
    return sqlite3.OperationalError(f"cannot use {path}: {error}{_hint(path, error)}")


def _open(
    path: str | Path, layout: TableSchema, pragmas: Sequence[str], timeout: float
) -> sqlite3.Connection:
    if str(path) != ":memory:":
        _make_private(path)
    connection = sqlite3.connect(path, timeout=timeout, check_same_thread=False, isolation_level=None)
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        layout.bring_to(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: str | Path) -> None:
    """Keep other users from a file and from those that SQLite has beside it, which get its mode if they are new."""
    with suppress(OSError):  # SQLite has the better words for why a file cannot be opened
        create(path)
        for suffix in ("-wal", "-shm", "-journal"):
            restrict(f"{path}{suffix}")


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    return connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()


def _code(error: sqlite3.DatabaseError) -> int:
    """The code of an error, without why it is that one; 0 if it has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _hint(path: str | Path, error: sqlite3.DatabaseError) -> str:
    code = _code(error)
    if code == sqlite3.SQLITE_BUSY:
        return "; another store or process has it, and each store needs a file of its own"
    if code == sqlite3.SQLITE_CANTOPEN and not Path(path).parent.is_dir():
        return "; there is no such folder"
    return ""


@contextmanager
def _alone(connection: sqlite3.Connection) -> Iterator[None]:
    """Have nobody else have the file open within the block; it has a write-ahead log afterwards, as before."""
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    try:
        connection.execute("PRAGMA journal_mode=DELETE")  # which cannot be where others have it open
    except sqlite3.OperationalError as error:
        raise _HeldError(
            "an older mcpbus wrote it, and another process has it open; end that, and start again"
        ) from error
    yield
    connection.execute("PRAGMA locking_mode=NORMAL")
    connection.execute("PRAGMA user_version")  # the lock is given up with the next that is read
    connection.execute("PRAGMA journal_mode=WAL")
