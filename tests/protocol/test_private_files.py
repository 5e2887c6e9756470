"""Files that can hold secrets: their mode, and their replacement as a whole, one program after the other."""

import errno
import fcntl
import os
import sqlite3
import stat
import threading

import pytest

from mcpbus.protocol import private_files
from mcpbus.protocol.private_files import create, locked, replace
from mcpbus.stores import SqliteEventStore
from mcpbus.tasks import SqliteTaskStore


@pytest.fixture(autouse=True)
def generous_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(file):
    return stat.S_IMODE(file.stat().st_mode)


def test_a_file_is_replaced_with_its_mode(tmp_path):
    file = tmp_path / "a.json"
    file.write_text("old")
    file.chmod(0o644)
    replace(file, b"new")
    assert (file.read_text(), mode(file)) == ("new", 0o600)
    replace(file, b"newer", mode=0o640)
    assert (file.read_text(), mode(file)) == ("newer", 0o640)


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path, monkeypatch, at):
    file = tmp_path / "a.json"
    file.write_text("old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(*((os, at) if at == "fsync" else (private_files.Path, at)), fail)
    with pytest.raises(OSError, match="full"):
        replace(file, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]
    assert file.read_text() == "old"


def test_a_file_is_made_private(tmp_path):
    file = tmp_path / "a.db"
    create(file)
    assert mode(file) == 0o600
    file.write_text("kept")
    file.chmod(0o664)
    create(file)
    assert (mode(file), file.read_text()) == (0o600, "kept")


def test_a_file_of_another_user_keeps_its_mode(tmp_path, monkeypatch):
    file = tmp_path / "a.db"
    file.touch()
    monkeypatch.setattr(private_files, "_user", lambda: file.stat().st_uid + 1)
    create(file)
    assert mode(file) == 0o666


def test_to_make_it_private_does_not_end_the_locks_of_this_process(tmp_path):
    file = tmp_path / "a.db"
    file.touch()
    with file.open("r+") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        create(file)
        child = os.fork()
        if not child:
            try:
                with file.open("r+") as other:
                    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os._exit(3)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@pytest.mark.parametrize("store", [SqliteEventStore, SqliteTaskStore])
@pytest.mark.parametrize("before", [None, 0o644])
async def test_nobody_else_reads_a_store(store, before, tmp_path):
    file = tmp_path / "a.db"
    if before is not None:
        sqlite3.connect(file).close()
        file.chmod(before)
    kept = store(file)
    try:
        assert {each.name: mode(each) for each in tmp_path.iterdir()} == {
            each.name: 0o600 for each in tmp_path.iterdir()
        }
        assert "a.db" in {each.name for each in tmp_path.iterdir()}
    finally:
        kept.close()


def test_one_program_at_a_time_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(private_files, "_MOST_SECONDS", 0.05)
    with locked(tmp_path), pytest.raises(TimeoutError, match="another program has locked"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []


def test_where_there_are_no_locks_files_are_changed_all_the_same(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(private_files.fcntl, "flock", fail)
    with locked(tmp_path):
        pass
    monkeypatch.setattr(private_files, "fcntl", None)
    with locked(tmp_path):
        pass


def test_no_change_of_many_threads_is_lost(tmp_path):
    file = tmp_path / "n"
    file.write_text("0")

    def count():
        for _ in range(20):
            with locked(tmp_path):
                replace(file, str(int(file.read_text()) + 1).encode())

    threads = [threading.Thread(target=count) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert file.read_text() == "160"
