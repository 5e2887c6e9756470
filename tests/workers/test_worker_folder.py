"""Folders of workers: removed in the end, or by the next program, and no other folder with them."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack

import pytest

from mcpbus.workers.folder import worker_folder

KILLED = """
import os, signal, subprocess, sys
from mcpbus.workers.folder import worker_folder
with worker_folder() as folder:
    (folder.sessions / "one").touch()
    if sys.argv[1:]:
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=[folder.lock])
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    """The place for temporary files, with nothing in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left(place):
    """A folder as a program leaves it that is killed."""
    folder = place / "mcpbus-workers-left"
    folder.mkdir(0o700)
    (folder / "links").mkdir()
    (folder / "sessions").mkdir()
    (folder / "sessions" / "one").touch()
    return folder


def sweep():
    with worker_folder():
        pass


def test_nothing_is_left_of_one(place):
    with worker_folder() as folder:
        assert [path.name for path in sorted(folder.path.iterdir())] == ["links", "sessions"]
        assert list(place.iterdir()) == [folder.path]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("part", ["", "links", "sessions"])
def test_what_somebody_has_removed_is_made_anew(part, place):
    with worker_folder() as folder:
        assert not folder.mend()
        shutil.rmtree(folder.path / part)
        assert folder.mend()
        assert not folder.mend()
        assert [path.name for path in sorted(folder.path.iterdir())] == ["links", "sessions"]
        assert folder.path.stat().st_mode & 0o77 == 0
        sweep()
        assert list(place.iterdir()) == [folder.path], "it is not locked"
    assert list(place.iterdir()) == []


def test_in_what_has_taken_its_place_nothing_is_made(place):
    with worker_folder() as folder:
        shutil.rmtree(folder.path)
        folder.path.mkdir()
        with pytest.raises(FileExistsError, match="something else is in its place"):
            folder.mend()
        assert list(folder.path.iterdir()) == []


def test_what_has_taken_its_place_is_neither_used_nor_removed_though_it_looks_the_same(place):
    with worker_folder() as folder:
        shutil.rmtree(folder.path)
        for part in (folder.path, folder.links, folder.sessions):
            part.mkdir()
        with pytest.raises(FileExistsError, match="something else is in its place"):
            folder.mend()
    assert folder.links.is_dir()


def test_a_link_in_its_place_is_not_followed(place):
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    with worker_folder() as folder:
        shutil.rmtree(folder.path)
        folder.path.symlink_to(elsewhere)
        with pytest.raises(FileExistsError, match="something else is in its place"):
            folder.mend()
    assert list(elsewhere.iterdir()) == []
    assert folder.path.is_symlink()


def test_it_is_made_anew_once_there_is_a_descriptor_for_it(place, monkeypatch):
    def fail(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with worker_folder() as folder:
        shutil.rmtree(folder.path)
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", fail)
            with pytest.raises(OSError, match="open files"):
                folder.mend()
        assert folder.mend()
        assert folder.links.is_dir()


def test_what_a_killed_program_has_left_is_swept(place):
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert len(list(place.iterdir())) == 1
    sweep()
    assert list(place.iterdir()) == []


def test_it_is_not_swept_while_a_worker_lives(place):
    with subprocess.Popen([sys.executable, "-c", KILLED, "worker"], stdin=subprocess.PIPE) as program:
        program.wait()
        [folder] = place.iterdir()
        sweep()
        assert (folder / "sessions" / "one").exists()


def test_that_of_another_program_that_runs_is_not_swept(place):
    with worker_folder() as one:
        with worker_folder() as other:
            assert sorted(place.iterdir()) == sorted([one.path, other.path])
        assert list(place.iterdir()) == [one.path]


def lock(folder, stack):
    descriptor = os.open(folder, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_SH)


SPARED = {
    "locked": lock,
    "has another name": lambda folder, _: folder.rename(folder.with_name("mcpbus-left")),
    "has more in it": lambda folder, _: (folder / "notes").touch(),
    "has less in it": lambda folder, _: (folder / "links").rmdir(),
    "may be read by others": lambda folder, _: folder.chmod(0o755),
}


@pytest.mark.parametrize("change", SPARED.values(), ids=SPARED)
def test_what_may_be_somebody_elses_is_not_swept(change, place):
    folder = left(place)
    with ExitStack() as stack:
        change(folder, stack)
        sweep()
        [spared] = place.iterdir()
        assert (spared / "sessions" / "one").exists()


def test_that_of_another_user_is_not_swept(place, monkeypatch):
    folder = left(place)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    sweep()
    assert folder.exists()


def test_a_link_is_not_followed_and_a_file_is_left(place):
    elsewhere = left(place).rename(place / "elsewhere")
    (place / "mcpbus-workers-link").symlink_to(elsewhere)
    (place / "mcpbus-workers-file").touch()
    sweep()
    assert (elsewhere / "sessions" / "one").exists()
    assert len(list(place.iterdir())) == 3
