"""Whoever closes a file waits for the statement that runs: closing under its feet crashes the process."""

import sqlite3
import threading

import pytest
import trio

from mcpbus.core.stores.sqlite_file import SqliteFile

DEADLINE = 10


@pytest.fixture
def file(tmp_path):
    made = SqliteFile(sqlite3.connect(tmp_path / "a.db", check_same_thread=False, isolation_level=None))
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
    with sqlite3.connect(tmp_path / "a.db") as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


async def test_a_file_that_is_closed_says_so(file):
    file.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await file.run(lambda: file.connection.execute("SELECT 1"))


async def test_a_file_can_be_closed_twice(file):
    file.close()
    file.close()
