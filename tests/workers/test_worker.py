"""A worker by itself: whether it is one, and that it ends when nobody keeps it any more."""

import os
import socket
import tempfile

import attrs
import pytest
import trio

from mcpbus.testing import MemoryDirectory
from mcpbus.workers.worker import VARIABLE, Worker, WorkerConfig, is_worker

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


@pytest.fixture
def worker(control, tmp_path):
    """One that has begun."""
    with tempfile.TemporaryFile() as board:
        board.write(bytes(4))
        board.flush()
        orders = WorkerConfig(0, "home", b"key", str(tmp_path), str(tmp_path), os.dup(board.fileno()), [])
        return Worker(orders, control[0])


async def test_one_that_serves_when_it_is_kept_no_longer_ends_in_order(control, worker):
    control[1].close()
    shutdown = trio.Event()
    async with worker.attend(shutdown) as say_where:
        await say_where("it", ["http://there"])
        with trio.fail_after(60):
            await shutdown.wait()


async def test_one_of_several_machines_tells_the_others_which_worker_has_ended(control, worker):
    say, told = trio.open_memory_channel(9)
    cluster = MemoryDirectory().cluster()
    assert worker.join(attrs.evolve(cluster, forget=say.send)) == attrs.evolve(
        cluster, home="home", forget=say.send
    )
    async with worker.attend(trio.Event()):
        control[1].sendall(b"one\ntw")
        with trio.fail_after(60):
            assert await told.receive() == "one"
            control[1].sendall(b"o\n")
            assert await told.receive() == "two"


async def test_one_of_a_machine_alone_has_nobody_to_tell(control, worker):
    shutdown = trio.Event()
    async with worker.attend(shutdown):
        control[1].sendall(b"one\n")
        control[1].close()
        with trio.fail_after(60):
            await shutdown.wait()
