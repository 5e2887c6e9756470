"""A file of an older build is brought up to date, with nobody else at it; one of a newer build is refused."""

import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest

from mcpbus.core.stores.sqlite import schema
from mcpbus.core.stores.sqlite.stores import _EVENTS
from mcpbus.stores import Replay, SqliteEventStore
from mcpbus.tasks import SqliteTaskStore

OLDER = """
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    final INTEGER NOT NULL,
    stored REAL NOT NULL,
    UNIQUE (session, stream, number)
);
INSERT INTO events (session, stream, number, data, final, stored) VALUES
    ('s', 'a', 1, x'6f6e65', 0, strftime('%s', 'now')), ('s', 'b', 1, x'62', 0, strftime('%s', 'now')), ('s', 'a', 2, x'74776f', 1, strftime('%s', 'now'));
"""
"""A row for each event, as it was before versions were told."""
STORES = pytest.mark.parametrize("make", [SqliteEventStore, SqliteTaskStore])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept.db"


@pytest.fixture
def older(path):
    """A process of an older build that has its file open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(OLDER)
        yield connection


def version_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


async def test_events_of_an_older_build_are_kept(older, path):
    older.close()
    with closing(SqliteEventStore(path, max_items=4)) as store:
        assert await store.replay("s", "a", 0) == Replay([b"one", b"two"], finished=True)
        await store.append("s", "b", 2, [b"c", b"d"], final=False)
        assert await store.replay("s", "a", 0) is None  # they were the oldest of five
        assert await store.replay("s", "b", 0) == Replay([b"b", b"c", b"d"], finished=False)


async def test_after_that_others_may_have_the_file_as_well(older, path):
    older.close()
    with closing(SqliteEventStore(path)) as store, closing(SqliteEventStore(path)) as other:
        await store.append("t", "a", 1, [b"new"], final=False)
        assert (await other.replay("t", "a", 0)).events == [b"new"]


async def test_whoever_comes_while_another_process_has_an_older_file_tries_again(older, path, monkeypatch):
    let_go = []

    def pause(seconds):
        older.close()
        let_go.append(seconds)

    monkeypatch.setattr(schema.time, "sleep", pause)
    with closing(SqliteEventStore(path)) as store:
        assert len(let_go) == 1
        assert await store.replay("s", "a", 0) == Replay([b"one", b"two"], finished=True)


async def test_what_another_process_has_brought_up_to_date_meanwhile_is_left_as_it_is(
    older, path, monkeypatch
):
    older.close()
    alone = schema._alone

    def after_another(connection):
        monkeypatch.undo()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(_EVENTS.table)
            _EVENTS.older["events"](other)
        return alone(connection)

    monkeypatch.setattr(schema, "_alone", after_another)
    with closing(SqliteEventStore(path)) as store:
        assert await store.replay("s", "a", 0) == Replay([b"one", b"two"], finished=True)


def test_a_process_of_an_older_build_keeps_what_it_has_open(older, path, monkeypatch):
    times = iter([0.0, 4.9, 5.0])
    monkeypatch.setattr(schema, "time", SimpleNamespace(monotonic=times.__next__, sleep=lambda _: None))
    with pytest.raises(sqlite3.OperationalError) as caught:
        SqliteEventStore(path)
    assert str(caught.value) == (
        f"cannot use {path}: an older mcpbus wrote it, and another process has it open; end that, and start again"
    )
    assert older.execute("SELECT count(*) FROM events").fetchone() == (3,)


@STORES
def test_a_file_of_a_newer_build_is_refused_and_left_as_it_is(make, path):
    make(path).close()
    newer = version_of(path) + 1
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    with pytest.raises(sqlite3.OperationalError) as caught:
        make(path)
    assert str(caught.value) == (
        f"cannot use {path}: it has version {newer}, and this mcpbus knows version {newer - 1}; use a newer mcpbus, or another file"
    )
    assert version_of(path) == newer


@STORES
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none/kept.db", "unable to open database file; there is no such folder"),
        ("notes.txt", "file is not a database"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(make, name, why, tmp_path):
    (tmp_path / "notes.txt").write_text("these are notes" * 100)
    with pytest.raises(sqlite3.OperationalError) as caught:
        make(tmp_path / name)
    assert str(caught.value) == f"cannot use {tmp_path / name}: {why}"


@STORES
async def test_a_file_that_is_damaged_is_named_at_the_start_and_closed(make, path):
    make(path).close()
    with closing(sqlite3.connect(path)) as connection:
        [size] = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek(size)  # the first page tells the tables
        file.write(b"\xff" * (path.stat().st_size - size))
    with pytest.raises(sqlite3.OperationalError) as caught, closing(make(path)) as store:
        await store.take_up("bus")
    assert str(caught.value) == f"cannot use {path}: database disk image is malformed"
    # SQLite removes it with the last connection.
    assert not path.with_name(f"{path.name}-shm").exists()


def test_two_stores_in_one_file_are_told_so(path):
    with closing(SqliteTaskStore(path)), pytest.raises(sqlite3.OperationalError) as caught:
        SqliteTaskStore(path)
    hint = "another store or process has it, and each store needs a file of its own"
    assert str(caught.value) == f"cannot use {path}: database is locked; {hint}"


@pytest.mark.parametrize(
    ("make", "other", "table"),
    [(SqliteEventStore, SqliteTaskStore, "tasks"), (SqliteTaskStore, SqliteEventStore, "batches")],
)
def test_a_file_of_another_kind_of_store_is_refused(make, other, table, path):
    make(path).close()
    with pytest.raises(sqlite3.OperationalError) as caught:
        other(path)
    why = f"it has no table '{table}', so it is another store's; each store needs a file of its own"
    assert str(caught.value) == f"cannot use {path}: {why}"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("make", "table"), [(SqliteEventStore, "batches"), (SqliteTaskStore, "tasks")])
def test_the_database_of_another_program_is_refused_and_left_as_it_is(make, table, version, path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"CREATE TABLE {table} (id TEXT, due TEXT); PRAGMA user_version = {version}")
    with pytest.raises(sqlite3.OperationalError) as caught:
        make(path)
    why = f"its table '{table}' is another program's; each store needs a file of its own"
    assert str(caught.value) == f"cannot use {path}: {why}"
    assert version_of(path) == version
