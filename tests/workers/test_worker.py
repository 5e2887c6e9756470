"""A worker by itself: whether it is one, and that it ends when nobody keeps it any more."""

import os
import socket
import tempfile

import pytest
import trio

from mcpbus.worker import VARIABLE, Orders, Worker, is_worker

NOBODY = 0
"""No process's number."""


@pytest.fixture
def control():
    """Leads to the process that keeps the worker, and what that one has of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_who_was_started_as_one_is_one(control, monkeypatch):
    assert not is_worker()
    monkeypatch.setenv(VARIABLE, f"{os.getppid()}:{control[0].fileno()}")
    assert is_worker()


def test_what_a_worker_started_is_none_though_it_has_the_variable(control, monkeypatch):
    descriptor = control[0].fileno()
    control[0].close()
    monkeypatch.setenv(VARIABLE, f"{NOBODY}:{descriptor}")
    assert not is_worker()
    with tempfile.TemporaryFile() as file:
        monkeypatch.setenv(VARIABLE, f"{NOBODY}:{file.fileno()}")
        assert not is_worker()


def test_one_that_is_kept_no_longer_ends_before_it_begins(control, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"{NOBODY}:{control[0].fileno()}")
    with pytest.raises(SystemExit, match="keeps this worker has ended"):
        is_worker()


def test_one_that_is_told_nothing_any_more_ends(control, monkeypatch):
    ours, theirs = control
    monkeypatch.setenv(VARIABLE, f"{os.getppid()}:{ours.detach()}")
    theirs.close()
    with pytest.raises(SystemExit, match="keeps this worker has ended"):
        Worker.begin()
    assert VARIABLE not in os.environ


async def test_one_that_serves_when_it_is_kept_no_longer_ends_in_order(control, tmp_path):
    with tempfile.TemporaryFile() as board:
        board.write(bytes(4))
        board.flush()
        orders = Orders(0, "home", b"key", str(tmp_path), str(tmp_path), os.dup(board.fileno()), [])
        worker = Worker(orders, control[0])
    control[1].close()
    shutdown = trio.Event()
    async with worker.attend(shutdown) as say_where:
        await say_where("it", ["http://there"])
        with trio.fail_after(5):
            await shutdown.wait()
