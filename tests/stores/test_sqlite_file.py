"""Statements run one after the other, those that come meanwhile together; and whoever closes a file waits for the one that runs."""

import sqlite3
import threading
from contextlib import closing
from unittest.mock import Mock

import pytest
import trio
import trio.testing

from mcpbus.core.stores.sqlite import file as sqlite_file
from mcpbus.core.stores.sqlite.file import SqliteFile
from mcpbus.core.stores.sqlite.stores import SqliteEventStore

DEADLINE = 60
BUSY = sqlite3.OperationalError("database is locked")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.db"
    made = SqliteFile(sqlite3.connect(path, check_same_thread=False, isolation_level=None), path)
    yield made
    made.close()


class Slow:
    """A function in a thread that has begun, and ends when it is let go."""

    def __init__(self, file, order):
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self._file = file
        self._order = order

    def __call__(self):
        self._file.connection.execute("BEGIN")
        self.begun.set()
        assert self.go_on.wait(DEADLINE)
        self._file.connection.execute("CREATE TABLE t (a)")
        self._file.connection.execute("COMMIT")
        self._order.append("committed")


async def test_a_file_is_closed_after_what_a_cancelled_task_left_running(file, tmp_path):
    order = []
    slow = Slow(file, order)

    async def close():
        await trio.to_thread.run_sync(file.close)
        order.append("closed")

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.run, slow)
            await trio.to_thread.run_sync(slow.begun.wait)
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            with trio.move_on_after(0.05):
                await trio.sleep_forever()  # a thread that need not wait is through by then
            assert order == []
            slow.go_on.set()
    assert order == ["committed", "closed"]
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


async def test_a_file_that_is_closed_says_so(file):
    file.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await file.run(lambda: file.connection.execute("SELECT 1"))


async def test_a_file_can_be_closed_twice(file):
    file.close()
    file.close()


class Kept:
    """What a file was told to keep, in one go each; and what it cannot keep."""

    def __init__(self, failures=None):
        self.gone = []
        self.told = []
        self._failures = failures or {}

    def __call__(self, items):
        self.gone.append(items)
        for item in items:
            if item in self._failures:
                raise self._failures[item]

    async def by(self, file, item):
        try:
            await file.run_together(self, item)
            self.told.append(item)
        except sqlite3.Error as error:
            self.told.append(f"{item}: {error}")


async def keep_meanwhile(file, kept, items, between=lambda nursery: None):
    """Have a file keep things that come while it is at work on the first one."""
    go_on = threading.Event()
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.run, lambda: go_on.wait(DEADLINE))
            await trio.testing.wait_all_tasks_blocked()
            for item in items:
                nursery.start_soon(kept.by, file, item)
                await trio.testing.wait_all_tasks_blocked()
            between(nursery)
            go_on.set()


async def test_what_comes_while_the_thread_is_at_work_is_kept_together(file):
    kept = Kept()
    await keep_meanwhile(file, kept, "abc")
    assert (kept.gone, sorted(kept.told)) == ([["a", "b", "c"]], ["a", "b", "c"])


async def test_what_one_thread_does_is_bounded(file, monkeypatch):
    monkeypatch.setattr(sqlite_file, "_MOST_AT_ONCE", 2)
    kept = Kept()
    await keep_meanwhile(file, kept, "abcde")
    assert (kept.gone, sorted(kept.told)) == ([["a", "b"], ["c", "d"], ["e"]], ["a", "b", "c", "d", "e"])


async def test_all_is_done_in_the_order_in_which_it_came(file):
    kept, other = Kept(), Kept()
    other.gone = kept.gone

    class Either:
        async def by(self, file, item):
            await (kept if item.islower() else other).by(file, item)

    await keep_meanwhile(file, Either(), "abCd")
    assert kept.gone == [["a", "b"], ["C"], ["d"]]


async def test_what_cannot_be_kept_does_not_keep_others_from_it(file):
    kept = Kept({"b": sqlite3.IntegrityError("there is one")})
    await keep_meanwhile(file, kept, "abc")
    assert kept.gone == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert sorted(kept.told) == ["a", "b: there is one", "c"]


async def test_where_the_file_is_at_fault_nobody_tries_alone(file):
    kept = Kept({"b": BUSY})
    await keep_meanwhile(file, kept, "abc")
    assert kept.gone == [["a", "b", "c"]]
    assert sorted(kept.told) == [f"{item}: database is locked" for item in "abc"]


async def test_what_is_cancelled_before_its_turn_is_not_done(file):
    kept = Kept()
    with trio.CancelScope() as scope:
        await keep_meanwhile(file, kept, "ab", lambda nursery: scope.cancel())
    assert await file.run(lambda: "later") == "later"
    assert kept.gone == []


async def test_where_no_thread_can_be_started_all_are_told(file, monkeypatch):
    def start(function, deliver):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(trio.lowlevel, "start_thread_soon", start)
        with trio.fail_after(DEADLINE), pytest.raises(RuntimeError, match="new thread"):
            await file.run(lambda: None)
    assert await file.run(lambda: "later") == "later"


@pytest.mark.parametrize("between", [True, False])
def test_a_file_is_used_again_after_trio_has_ended(between, file):
    """Its thread ends between the two runs of trio, or in the second one."""
    go_on, left, told = threading.Event(), threading.Event(), threading.Event()
    tell = file._tell
    file._tell = lambda jobs: (tell(jobs), told.set())

    def wait():
        go_on.wait(DEADLINE)
        left.set()

    async def leave_running():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.run, wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    async def use():
        go_on.set()
        with trio.fail_after(DEADLINE):
            return await file.run(left.is_set)

    trio.run(leave_running)
    if between:
        go_on.set()
        assert told.wait(DEADLINE)
    assert trio.run(use)


@pytest.mark.parametrize("ask", [SqliteFile.run, lambda file, kept: file.run_together(kept, "a")])
async def test_a_thread_that_ends_early_has_done_nothing_that_anybody_believes(file, monkeypatch, ask):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(sqlite_file, "groupby", fail)
    with pytest.raises(sqlite3.OperationalError, match="ended early"):
        await ask(file, Kept())
    monkeypatch.undo()
    assert await file.run(lambda: "done") == "done"


REMOVED = {
    "removed": lambda path: path.unlink(),
    "replaced": lambda path: (path.rename(f"{path}.old"), path.touch()),
}
TOLD = {"removed": "is not there any more", "replaced": "is another file now"}


@pytest.mark.parametrize("how", REMOVED)
async def test_a_file_that_is_taken_away_is_told_once(how, tmp_path, monkeypatch, caplog):
    path = tmp_path / "events.db"
    monkeypatch.setattr(sqlite_file, "LOOK_SECONDS", -1)
    with closing(SqliteEventStore(path)) as store:
        await store.append("session", "stream", 1, [b"a"], final=False)
        assert caplog.messages == []
        REMOVED[how](path)
        for number in (2, 3):
            await store.append("session", "stream", number, [b"a"], final=False)
        assert await store.replay("session", "stream", 2)
    (told,) = caplog.messages
    assert f"{path} {TOLD[how]}" in told


async def test_a_file_that_comes_back_is_no_other(tmp_path, monkeypatch, caplog):
    folder, aside = tmp_path / "data", tmp_path / "aside"
    folder.mkdir()
    monkeypatch.setattr(sqlite_file, "LOOK_SECONDS", -1)
    with closing(SqliteEventStore(folder / "events.db")) as store:
        folder.rename(aside)
        await store.append("session", "stream", 1, [b"a"], final=False)
        aside.rename(folder)
        for number in (2, 3):
            await store.append("session", "stream", number, [b"a"], final=False)
    gone, again = caplog.messages
    assert "is not there any more" in gone
    assert "nothing is lost" in again


async def test_a_file_is_not_missed_for_another_current_folder_or_one_that_cannot_be_asked(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(sqlite_file, "LOOK_SECONDS", -1)
    monkeypatch.chdir(tmp_path)
    with closing(SqliteEventStore("events.db")) as store:
        monkeypatch.chdir("/")
        await store.append("session", "stream", 1, [b"a"], final=False)
        monkeypatch.setattr(sqlite_file, "_identify", Mock(side_effect=TimeoutError))
        await store.append("session", "stream", 2, [b"a"], final=False)
    assert caplog.messages == []
