"""Where logins are kept: in memory, and in files that nobody else can read."""

import os
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from mcpbus.client import FileTokenStorage, LoginError, MemoryTokenStorage, TokenStorage
from mcpbus.client.oauth import storage
from mcpbus.client.oauth.storage import default_folder

URL = "https://mcp.example/mcp"


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    return MemoryTokenStorage() if request.param == "memory" else FileTokenStorage(tmp_path / "a" / "logins")


async def test_what_is_kept(store: TokenStorage):
    assert await store.load(URL) is None
    await store.save(URL, b"one")
    await store.save(f"{URL}/other", b"two")
    assert (await store.load(URL), await store.load(f"{URL}/other")) == (b"one", b"two")
    await store.save(URL, b"three")
    assert await store.load(URL) == b"three"
    for _ in range(2):
        await store.save(URL, None)
        assert await store.load(URL) is None
    assert await store.load(f"{URL}/other") == b"two"


async def test_what_is_kept_for_one_account_is_none_of_another_one(tmp_path):
    stores = [
        FileTokenStorage(tmp_path, account=account)
        for account in (None, "work", "Work", "home office", "work ")
    ]
    for store in stores:
        assert await store.load(URL) is None
        await store.save(URL, repr(store).encode())
    assert [await store.load(URL) for store in stores] == [repr(store).encode() for store in stores]
    await stores[1].save(URL, None)
    assert [await store.load(URL) is None for store in stores] == [False, True, False, False, False]
    # Each has a turn of its own.
    with trio.fail_after(10):
        async with stores[0].lock(URL), stores[2].lock(URL):
            pass


@pytest.mark.parametrize(
    ("account", "error"),
    [("", ValueError), (" ", ValueError), ("a\n", ValueError), ("x" * 101, ValueError), (5, TypeError)],
)
def test_an_account_has_a_name(account, error, tmp_path):
    with pytest.raises(error, match="FileTokenStorage: account is"):
        FileTokenStorage(tmp_path, account=account)


async def test_one_at_a_time_sees_to_a_login_and_who_is_cancelled_is_followed_by_the_next(store):
    there, most = 0, 0

    async def visit(server, seconds):
        nonlocal there, most
        async with store.lock(server):
            there += 1
            most = max(most, there)
            try:
                await trio.sleep(seconds)
            finally:
                there -= 1

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(visit, URL, 0.001)
        assert most == 1
        with trio.move_on_after(0.01):
            await visit(URL, 100)
        await visit(URL, 0)
        # Two logins are two.
        async with store.lock(URL):
            await visit(f"{URL}/other", 0)


async def test_nobody_else_can_read_what_is_in_files(tmp_path):
    store = FileTokenStorage(tmp_path / "logins")
    mask = os.umask(0)
    try:
        async with store.lock(URL):
            await store.save(URL, b"s3cret")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "logins").stat().st_mode) == 0o700
    files = [*(tmp_path / "logins").iterdir()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert sorted(file.suffix for file in files) == [".json", ".lock"]
    assert all(file.name.startswith("mcp.example-") for file in files)


@pytest.mark.parametrize(
    "server",
    [
        "https://mcp.example/../../etc/passwd",
        "https://[::1]:8000/mcp",
        "https://" + "a" * 300 + ".example/mcp",
        "https://\xe9/",
    ],
)
async def test_whatever_a_server_is_called_its_file_is_in_the_folder(server, tmp_path):
    store = FileTokenStorage(tmp_path)
    await store.save(server, b"x")
    [file] = tmp_path.iterdir()
    assert file.parent == tmp_path
    assert await FileTokenStorage(tmp_path).load(server) == b"x"


async def test_a_file_is_there_as_a_whole_or_as_it_was(tmp_path, monkeypatch):
    store = FileTokenStorage(tmp_path)
    await store.save(URL, b"one")

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LoginError, match=f"cannot be kept in {tmp_path}: No space left on device"):
        await store.save(URL, b"two")
    assert await store.load(URL) == b"one"
    assert len([*tmp_path.iterdir()]) == 1


async def test_what_is_forgotten_is_so_though_a_program_was_killed_while_it_wrote(tmp_path, monkeypatch):
    store = FileTokenStorage(tmp_path)
    await store.save(URL, b"one")
    await store.save(f"{URL}/other", b"another")
    with monkeypatch.context() as killed:
        killed.setattr(storage.Path, "replace", lambda *_: 1 / 0)
        killed.setattr(storage.Path, "unlink", lambda *_, **__: None)
        with pytest.raises(ZeroDivisionError):
            await store.save(URL, b"s3cret")
    assert len([*tmp_path.iterdir()]) == 3
    await store.save(URL, None)
    [left] = tmp_path.iterdir()
    assert left.read_bytes() == b"another"


async def test_a_folder_that_cannot_be_used_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    store = FileTokenStorage(tmp_path / "file" / "logins")
    for attempt in (store.load(URL), store.save(URL, b"x"), store.lock(URL).__aenter__()):
        with pytest.raises(LoginError, match=f"{tmp_path}/file/logins"):
            await attempt


HOLDER = """
import sys, trio
from mcpbus.client import FileTokenStorage

async def main():
    async with FileTokenStorage(sys.argv[1]).lock(sys.argv[2]):
        print("mine", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_another_program_is_waited_for_until_it_ends_however_it_does(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(storage, "_PATIENCE_SECONDS", 0.2)
    store, command = FileTokenStorage(tmp_path), [sys.executable, "-c", HOLDER, tmp_path, URL]
    async with trio.open_nursery() as nursery:
        start = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
        other = await nursery.start(start)
        assert (await other.stdout.receive_some()).startswith(b"mine")
        with trio.move_on_after(0.3) as scope:
            async with store.lock(URL):
                pass
        assert scope.cancelled_caught
        assert f"another program sees to the login at {URL}, and is waited for" in caplog.text
        other.kill()
        with trio.fail_after(30):
            async with store.lock(URL):
                pass


def test_where_logins_are_by_default(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "mcpbus" / "logins"
    assert FileTokenStorage().folder == default_folder()
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".config" / "mcpbus" / "logins"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("APPDATA", str(tmp_path / "Roaming"))
    assert default_folder() == tmp_path / "Roaming" / "mcpbus" / "logins"


async def test_a_system_without_locks_has_them_within_a_program(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "fcntl", None)
    store = FileTokenStorage(tmp_path)
    seen = []

    async def visit():
        async with store.lock(URL):
            seen.append("visited")

    async with trio.open_nursery() as nursery, store.lock(URL):
        nursery.start_soon(visit)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
    assert seen == ["visited"]


def test_what_a_store_shows(tmp_path):
    assert repr(FileTokenStorage(tmp_path)) == f"FileTokenStorage({str(tmp_path)!r})"
    assert FileTokenStorage(str(tmp_path)).folder == Path(tmp_path)
    with pytest.raises(TypeError, match="folder is a text or a path"):
        FileTokenStorage(7)


async def test_a_folder_in_which_everybody_may_write_is_not_used(tmp_path):
    """Somebody else could put a login there, at whose issuer and as whom they like, or what is read without end."""
    tmp_path.chmod(0o1777)
    store = FileTokenStorage(tmp_path)
    for attempt in (store.load(URL), store.save(URL, b"x"), store.lock(URL).__aenter__()):
        with pytest.raises(LoginError, match=f"everybody may write into {tmp_path}.*chmod o-w"):
            await attempt
    assert [*tmp_path.iterdir()] == []
    tmp_path.chmod(0o775)
    await store.save(URL, b"x")
    assert await store.load(URL) == b"x"


async def test_a_file_system_that_has_no_locks_is_told(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(storage.fcntl, "flock", fail)
    with pytest.raises(LoginError, match=f"{tmp_path}: No locks available"):
        async with FileTokenStorage(tmp_path).lock(URL):
            pass


async def test_another_program_that_never_ends_is_not_waited_for_for_ever(tmp_path, autojump_clock):
    """It may have been stopped."""
    async with FileTokenStorage(tmp_path).lock(URL):
        with pytest.raises(LoginError, match=f"another program has seen to the login at {URL} for .*end it"):
            async with FileTokenStorage(tmp_path).lock(URL):
                pass
    assert 300 < trio.current_time() < 3600
