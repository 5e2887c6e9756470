"""Processes of one machine that find each other in a folder."""

import os
import shutil
import time
from functools import partial

import pytest
import trio

from mcpbus.cluster.directory import FencedError, SessionClaim, StoredHeldMessage, StoredSession
from mcpbus.cluster.folder_directory import FolderDirectory
from mcpbus.core.lease import Lease
from mcpbus.testing import MemoryDirectory


async def echo(stream):
    async with stream:
        async for data in stream:
            await stream.send_all(data)


@pytest.fixture
def folder(tmp_path):
    records = tmp_path / "records"
    records.mkdir()
    return FolderDirectory(tmp_path, records)


@pytest.fixture
def removable(tmp_path):
    """One that can be removed, and what is kept not with it."""
    folder = FolderDirectory(tmp_path / "links", tmp_path / "records")
    folder.path.mkdir()
    return folder


async def test_who_listens_is_found_until_it_ends(tmp_path, folder):
    (tmp_path / "no socket").touch()
    assert await folder.homes() == []
    assert await folder.dial("home") is None
    async with trio.open_nursery() as nursery:
        await nursery.start(folder.listen, "home", echo, Lease())
        assert await folder.homes() == ["home"]
        async with await folder.dial("home") as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
        nursery.cancel_scope.cancel()
    assert await folder.dial("home") is None


async def test_who_listens_is_found_again_though_its_socket_was_removed(removable, autojump_clock):
    async with trio.open_nursery() as nursery:
        await nursery.start(removable.listen, "home", echo, Lease())
        async with await removable.dial("home") as before:
            shutil.rmtree(removable.path)
            await trio.sleep(3)  # there is no place for another one
            assert await removable.dial("home") is None
            removable.path.mkdir()
            again = None
            while again is None:  # a thread makes it, and knows no virtual time
                await trio.sleep(0.1)
                again = await removable.dial("home")
            assert await removable.homes() == ["home"]
            async with again:
                for stream in (before, again):
                    await stream.send_all(b"hello")
                    assert await stream.receive_some() == b"hello"
        nursery.cancel_scope.cancel()


async def test_who_listens_goes_on_where_there_is_no_place_for_another_socket(removable, autojump_clock):
    async with trio.open_nursery() as nursery:
        await nursery.start(removable.listen, "home", echo, Lease())
        async with await removable.dial("home") as stream:
            shutil.rmtree(removable.path)
            removable.path.touch()
            await trio.sleep(3)
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
        nursery.cancel_scope.cancel()


async def test_a_folder_that_is_somebody_elses_is_not_used(folder, monkeypatch, autojump_clock):
    kept = SessionClaim("name", "home")
    async with trio.open_nursery() as nursery:
        await nursery.start(folder.listen, "home", echo, Lease())
        await folder.create(kept, b"record")
        monkeypatch.setattr(os, "geteuid", lambda: folder.path.stat().st_uid + 1)
        for ask in (folder.homes, partial(folder.dial, "home"), partial(folder.create, kept, b"record")):
            with pytest.raises(PermissionError, match="is somebody else's"):
                await ask()
        with pytest.raises(PermissionError, match="is somebody else's"):
            await folder.get("name")
        (folder.path / "home").unlink()
        await trio.sleep(3)
        assert not (folder.path / "home").exists()
        nursery.cancel_scope.cancel()


async def test_what_was_cleaned_up_is_unknown_and_made_again(folder):
    folder.records.rmdir()
    assert await folder.get("name") is None
    assert await folder.maintain([], 1) == ()
    with pytest.raises(FencedError):
        await folder.update(SessionClaim("name", "home"), b"")
    await folder.create(SessionClaim("name", "home"), b"record")
    assert (await folder.get("name")).record == b"record"
    assert folder.records.stat().st_mode & 0o77 == 0


@pytest.fixture(params=["in a folder", "in memory"])
def directory(request, folder):
    return folder if request.param == "in a folder" else MemoryDirectory()


ONE, OTHER = SessionClaim("s", "one"), SessionClaim("t", "two")


async def test_what_is_kept_of_a_session_is_found_until_it_is_removed(directory):
    assert await directory.get("s") is None
    await directory.create(ONE, b"old")
    await directory.create(OTHER, b"other")
    await directory.update(ONE, b"new")
    assert [await directory.get(name) for name in "st"] == [
        StoredSession(ONE, b"new"),
        StoredSession(OTHER, b"other"),
    ]
    for _ in range(2):
        await directory.remove(ONE)
    assert [await directory.get(name) for name in "st"] == [None, StoredSession(OTHER, b"other")]
    with pytest.raises(FencedError):
        await directory.update(ONE, b"new")


async def test_a_session_is_given_to_one_process_only(directory):
    await directory.create(ONE, b"it")
    claimed = [await directory.claim("s", "one", home) for home in ("two", "three", "two")]
    assert [(kept.ownership.home, kept.record) for kept in claimed] == [("two", b"it")] * 3
    assert await directory.get("s") == claimed[0]
    with pytest.raises(FencedError):
        await directory.update(ONE, b"late")
    await directory.update(claimed[0].ownership, b"new")
    assert (await directory.get("s")).record == b"new"
    assert await directory.claim("t", "one", "two") is None


async def test_a_round_is_used_once(directory):
    used = [await directory.claim_round(name, user, 60) for name, user in ["r1", "r2", "r1", "s2"]]
    assert used == [True, False, True, True]


async def test_a_round_that_nobody_can_bring_back_is_forgotten(folder, tmp_path):
    await folder.claim_round("old", "1", -1)
    await folder.claim_round("new", "1", 60)
    folder._rounds._swept -= 61
    assert await folder.claim_round("other", "1", 60)
    assert sorted(place.name for place in (tmp_path / "rounds").iterdir()) == ["new", "other"]


async def test_a_round_stays_used_when_the_clock_goes_forward_and_back(folder, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    await folder.claim_round("used", "1", 60)
    now += 3600
    folder._rounds._swept -= 61
    await folder.claim_round("other", "1", 60)
    now -= 3600
    assert not await folder.claim_round("used", "2", 60)
    assert await folder.homes() == []


async def test_a_session_that_is_released_is_for_whoever_is_asked(directory):
    async with trio.open_nursery() as nursery:
        await nursery.start(directory.listen, "one", echo, Lease())
        await directory.create(ONE, b"it")
        await directory.append_held(ONE, {"1": StoredHeldMessage(b"held", 60)}, ())
        for _ in range(2):  # what was done already may be said once more
            await directory.release([ONE, SessionClaim("unknown", "one")])
        with pytest.raises(FencedError):
            await directory.update(ONE, b"late")
        owner = (await directory.get("s")).ownership.home
        assert await directory.dial(owner) is None
        claimed = [await directory.claim("s", owner, home) for home in ("two", "three")]
        assert [kept.ownership.home for kept in claimed] == ["two"] * 2
        assert (claimed[0].record, [*claimed[0].held]) == (b"it", ["1"])
        await directory.update(claimed[0].ownership, b"new")
        nursery.cancel_scope.cancel()


async def test_what_is_held_for_a_client_goes_with_its_session(directory, monkeypatch, autojump_clock):
    await directory.create(ONE, b"it")
    monkeypatch.setattr(time, "monotonic", trio.current_time)
    await directory.append_held(ONE, {"1": StoredHeldMessage(b"a", 60), "2": StoredHeldMessage(b"b", 60)}, ())
    await trio.sleep(10)
    await directory.append_held(ONE, {"3": StoredHeldMessage(b"c", 60)}, ("2", "7"))
    await directory.update(ONE, b"new")
    claimed = await directory.claim("s", "one", "two")
    assert claimed == await directory.get("s")
    assert {name: each.data for name, each in claimed.held.items()} == {"1": b"a", "3": b"c"}
    assert [each.seconds for each in claimed.held.values()] == pytest.approx([50, 60], abs=0.1)
    for late in (
        directory.append_held(ONE, {"4": StoredHeldMessage(b"d", 60)}, ()),
        directory.pop_held(ONE, ("1",)),
    ):
        with pytest.raises(FencedError):
            await late
    for _ in range(2):
        await directory.pop_held(claimed.ownership, ("1",))
        assert [*(await directory.get("s")).held] == ["3"]


async def test_what_an_ended_process_had_is_forgotten_in_time(directory, autojump_clock):
    await directory.create(ONE, b"it")
    async with trio.open_nursery() as nursery:
        await nursery.start(directory.listen, "two", echo, Lease())
        await directory.create(OTHER, b"it")
        for _ in range(11):
            assert await directory.get("s") == StoredSession(ONE, b"it")
            await directory.maintain([], 10)
            await trio.sleep(1)
        await directory.maintain([], 10)
        assert [await directory.get(name) for name in "st"] == [None, StoredSession(OTHER, b"it")]
        nursery.cancel_scope.cancel()
