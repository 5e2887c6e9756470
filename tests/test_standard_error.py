"""The log of a program, and a standard error that somebody reads, or nobody."""

import errno
import io
import logging
import os
import sys
import threading

import pytest

from mcpbus.process import stderr
from mcpbus.process.stderr import NonblockingStderr, log_without_blocking

log = logging.getLogger("mcpbus.tests")


@pytest.fixture
def pipe():
    """A pipe: where to read from it, and the stream that writes to it."""
    near, far = os.pipe()
    with os.fdopen(near, "rb") as reader, os.fdopen(far, "w", encoding="utf-8", buffering=1) as writer:
        yield reader, writer


def rest(reader):
    os.set_blocking(reader.fileno(), False)
    return (reader.read() or b"").decode()


def test_what_is_said_is_written_in_order_before_the_end(pipe):
    reader, writer = pipe
    aside = NonblockingStderr(writer.fileno(), "utf-8")
    for n in range(100):
        aside.write(f"line {n} é\n")
    aside.close()
    assert rest(reader) == "".join(f"line {n} é\n" for n in range(100))
    assert aside.dropped == 0
    assert aside.closed
    assert not aside._thread.is_alive()


def test_nobody_waits_for_a_pipe_that_is_not_read_and_what_is_dropped_is_told(pipe, monkeypatch):
    monkeypatch.setattr(stderr, "_LAST_WORDS_SECONDS", 0.01)
    reader, writer = pipe
    aside = NonblockingStderr(writer.fileno(), "utf-8")
    for _ in range(2):
        before, told, numbers = aside.dropped, 0, []
        for n in range(3000):
            aside.write(f"{n:1000}\n")
        dropped = aside.dropped - before
        assert dropped >= 1500
        while (line := reader.readline().decode()) != "again\n":
            if "not here" in line:
                told += int(line[1:].split()[0])
            else:
                numbers.append(int(line))
                if len(numbers) == 500:  # there is room again
                    aside.write("again\n")
        assert numbers == sorted(numbers)
        assert (told, len(numbers)) == (dropped, 3000 - dropped)
    aside.close()


def test_the_end_does_not_wait_for_a_pipe_that_is_not_read(pipe, monkeypatch):
    monkeypatch.setattr(stderr, "_LAST_WORDS_SECONDS", 0.01)
    aside = NonblockingStderr(pipe[1].fileno(), "utf-8")
    for _ in range(200):
        aside.write("x" * 1000)
    aside.close()


def test_a_pipe_that_is_closed_or_does_not_block_is_no_fault(pipe, monkeypatch):
    reader, writer = pipe
    waits, select = threading.Event(), stderr.select.select

    def wait_for_room(*descriptors):
        waits.set()
        return select(*descriptors)

    monkeypatch.setattr(stderr.select, "select", wait_for_room)
    os.set_blocking(writer.fileno(), False)
    aside = NonblockingStderr(writer.fileno(), "utf-8")
    for _ in range(200):
        aside.write("x" * 1000)
    assert waits.wait(60), "it does not try again and again"
    assert len(reader.read(100_000)) == 100_000
    reader.close()
    aside.close()


def test_a_full_disk_that_has_room_again_gets_what_is_said_from_then_on(tmp_path, monkeypatch):
    path, write, room, refused = tmp_path / "log", os.write, 3, threading.Semaphore(0)

    def write_what_fits(descriptor, data):
        nonlocal room
        if not room:
            refused.release()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(stderr.os, "write", write_what_fits)
    with path.open("wb") as file:
        aside = NonblockingStderr(file.fileno(), "utf-8")
        for word in ("cut off\n", "lost\n"):
            aside.write(word)
            assert refused.acquire(timeout=60)
        room = 1000
        aside.write("again\n")
        aside.write("and again\n")
        aside.close()
    missing = "(2 entries of the log are not here: they could not be written)"
    assert path.read_text("utf-8").splitlines() == ["cut", missing, "again", "and again"]


@pytest.mark.parametrize("why", [errno.EPIPE, errno.EBADF, errno.EIO], ids=errno.errorcode.get)
def test_nothing_is_written_any_more_once_what_is_written_to_is_gone(why, tmp_path, monkeypatch):
    """Something else may have its number by then."""
    write, refusals = os.write, [OSError(why, os.strerror(why))]

    def refuse_once(descriptor, data):
        if refusals:
            raise refusals.pop()
        return write(descriptor, data)

    monkeypatch.setattr(stderr.os, "write", refuse_once)
    path = tmp_path / "something else"
    with path.open("wb") as file:
        aside = NonblockingStderr(file.fileno(), "utf-8")
        aside.write("lost\n")
        aside.write("lost as well\n")
        aside._thread.join(60)
        aside.close()
    assert path.read_bytes() == b""


def test_handlers_that_write_to_standard_error_are_moved_aside_for_a_while(pipe, monkeypatch):
    reader, writer = pipe
    elsewhere = io.StringIO()
    monkeypatch.setattr(sys, "stderr", writer)
    moved, left = logging.StreamHandler(), logging.StreamHandler(elsewhere)
    moved.setFormatter(logging.Formatter("%(name)s says: %(message)s"))
    monkeypatch.setattr(log, "handlers", [moved, left])
    monkeypatch.setattr(log, "propagate", False)
    with log_without_blocking():
        assert isinstance(moved.stream, NonblockingStderr)
        assert left.stream is elsewhere
        log.warning("%s and %d", "one", 2)
    assert moved.stream is writer
    assert rest(reader) == "mcpbus.tests says: one and 2\n"
    assert elsewhere.getvalue() == "one and 2\n"


def test_the_handler_of_last_resort_is_moved_aside_too(pipe, monkeypatch):
    reader, writer = pipe
    monkeypatch.setattr(sys, "stderr", writer)
    monkeypatch.setattr(log, "propagate", False)
    before = logging.lastResort
    with log_without_blocking():
        assert isinstance(logging.lastResort.stream, NonblockingStderr)
        log.setLevel(logging.INFO)
        log.info("not told")
        log.warning("told")
    log.setLevel(logging.NOTSET)
    assert logging.lastResort is before
    assert rest(reader) == "told\n"


def test_where_there_is_no_handler_of_last_resort_there_is_none_aside(pipe, monkeypatch):
    monkeypatch.setattr(sys, "stderr", pipe[1])
    monkeypatch.setattr(logging, "lastResort", None)
    with log_without_blocking():
        assert logging.lastResort is None


def test_the_thread_keeps_no_program_from_its_end(pipe):
    aside = NonblockingStderr(pipe[1].fileno(), "utf-8")
    assert aside._thread.daemon
    aside.close()


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_where_there_is_no_descriptor_nothing_is_moved(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    before = logging.lastResort
    with log_without_blocking():
        assert logging.lastResort is before
