"""Processes of one machine that find each other in a folder."""

import pytest
import trio

from mcpbus.cluster.socket_folder import SocketFolder
from mcpbus.testing import MemoryDirectory


async def echo(stream):
    async with stream:
        async for data in stream:
            await stream.send_all(data)


@pytest.fixture
def folder(tmp_path):
    records = tmp_path / "records"
    records.mkdir()
    return SocketFolder(tmp_path, records)


async def test_who_listens_is_found_until_it_ends(tmp_path, folder):
    (tmp_path / "no socket").touch()
    assert await folder.homes() == []
    assert await folder.dial("home") is None
    async with trio.open_nursery() as nursery:
        await nursery.start(folder.listen, "home", echo)
        assert await folder.homes() == ["home"]
        async with await folder.dial("home") as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
        nursery.cancel_scope.cancel()
    assert await folder.dial("home") is None


@pytest.fixture(params=["in a folder", "in memory"])
def directory(request, folder):
    return folder if request.param == "in a folder" else MemoryDirectory()


def test_what_is_kept_of_a_session_is_found_until_it_is_dropped(directory):
    assert (directory.owner("s"), directory.record("one", "s")) == (None, None)
    directory.keep("one", "s", b"old")
    directory.keep("one", "s", b"new")
    directory.keep("two", "t", b"other")
    assert (directory.owner("s"), directory.record("one", "s"), directory.record("two", "s")) == (
        "one",
        b"new",
        None,
    )
    directory.drop("one", "s")
    directory.drop("one", "s")
    directory.drop("nobody", "s")
    assert (directory.owner("s"), directory.owner("t")) == (None, "two")


def test_a_session_is_given_to_one_process_only(directory):
    directory.keep("one", "s", b"it")
    assert [directory.claim("s", "one", home) for home in ("two", "three")] == [True, False]
    assert (directory.owner("s"), directory.record("two", "s"), directory.record("one", "s")) == (
        "two",
        b"it",
        None,
    )
    assert not directory.claim("t", "one", "two")


def test_all_that_a_process_had_is_forgotten(directory):
    directory.keep("one", "s", b"it")
    directory.keep("two", "t", b"it")
    assert {*directory.owners()} == {"one", "two"}
    for _ in range(2):
        directory.forget("one")
    assert ({*directory.owners()}, directory.owner("s"), directory.owner("t")) == ({"two"}, None, "two")
