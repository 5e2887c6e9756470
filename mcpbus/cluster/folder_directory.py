"""Processes of one machine, each with a Unix socket in a folder that they have in common, named by its home.

The rounds of calls that were used, as links in a folder that point nowhere: each is there at once with all that it says, or not.
"""

import errno
import os
import shutil
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import msgspec
import trio

from mcpbus.cluster.directory import (
    Accept,
    DeadNodes,
    FencedError,
    SessionClaim,
    StoredHeldMessage,
    StoredSession,
    released_home,
)
from mcpbus.core.lease import Lease

_SWEEP_SECONDS: Final = 60.0


class UsedRounds:
    """The rounds that processes of one machine have used.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._swept = time.monotonic()

    def use(self, name: str, user: str, seconds: float) -> bool:
        """See `ClusterDirectory.use_round`."""
        self._folder.mkdir(exist_ok=True)
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self._sweep()
        place = self._folder / name
        try:
            # By the clock of the day, which its state goes by, and by one that nobody sets forward, and then back.
            place.symlink_to(f"{user} {time.time() + seconds} {time.monotonic() + seconds}")
        except FileExistsError:
            return _read(place)[0] == user
        return True

    def _sweep(self) -> None:
        """Forget those that nobody can bring back any more."""
        now, self._swept = time.time(), time.monotonic()
        for place in self._folder.iterdir():
            with suppress(FileNotFoundError):  # others sweep as well
                _, until, lasting_until = _read(place)
                if until < now and lasting_until < self._swept:
                    place.unlink()


def _read(place: Path) -> tuple[str, float, float]:
    user, until, lasting_until = str(place.readlink()).split()
    return user, float(until), float(lasting_until)


_LOOK_SECONDS: Final = 1.0
"""Between two looks whether a process can still be found."""


class _File(msgspec.Struct, array_like=True):
    """What a session's file holds.

    Attributes:
        record: What is known of the session.
        held: The messages that wait for its client, by name, and until when each is of use, by the clock of the machine.
    """

    record: bytes
    held: dict[str, tuple[bytes, float]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_File).decode


@attrs.frozen
class FolderDirectory:
    """A `ClusterDirectory` of the processes that listen in a folder.

    That one of them has ended is known at once: nobody listens on its socket any more. Before, nobody takes anything of it over. So who has a
    session is told by the folder in which its file is, and epochs say nothing.

    Attributes:
        path: The folder; who may look into it may speak to them.
        records: Another one, with a folder for each process, and in that a file for each session.
    """

    path: Path
    records: Path
    _rounds: UsedRounds = attrs.field(init=False, repr=False)
    _orphans: DeadNodes = attrs.field(factory=DeadNodes, init=False, repr=False)

    @_rounds.default
    def _in_rounds(self) -> UsedRounds:
        return UsedRounds(self.path / "rounds")

    async def create(self, ownership: SessionClaim, record: bytes) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        self._make_folder(ownership.home)
        self._write(ownership, _File(record, {}))

    async def update(self, ownership: SessionClaim, record: bytes) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        self._write(ownership, _File(record, self._read(ownership).held))

    async def remove(self, ownership: SessionClaim) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        self._place(ownership).unlink(missing_ok=True)

    async def append_held(
        self, ownership: SessionClaim, held: Mapping[str, StoredHeldMessage], gone: Collection[str]
    ) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        file, now = self._read(ownership), time.monotonic()
        file.held.update({name: (each.data, now + each.seconds) for name, each in held.items()})
        self._write_without(ownership, file, gone)

    async def pop_held(self, ownership: SessionClaim, names: Collection[str]) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        self._write_without(ownership, self._read(ownership), names)

    async def release(self, ownerships: Sequence[SessionClaim]) -> None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        for ownership in ownerships:
            free = released_home(ownership.home)
            if not self._move(ownership.name, ownership.home, free):
                self._make_folder(free)
                self._move(ownership.name, ownership.home, free)

    def _move(self, name: str, home: str, to: str) -> bool:
        """Move a session's file, and return whether it was there, and the folder to which it goes."""
        try:
            os.rename(f"{self.records}/{home}/{name}", f"{self.records}/{to}/{name}")  # noqa: PTH104 - many at a time
        except FileNotFoundError:
            return False
        return True

    async def get(self, name: str) -> StoredSession | None:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        for _ in range(2):  # it may have gone from one place to another one meanwhile
            for folder in self._folders():
                with suppress(FileNotFoundError):
                    file, now = _decode((folder / name).read_bytes()), time.monotonic()
                    held = {
                        each: StoredHeldMessage(data, due - now) for each, (data, due) in file.held.items()
                    }
                    return StoredSession(SessionClaim(name, folder.name), file.record, held)
        return None

    async def claim(self, name: str, ended: str, home: str) -> StoredSession | None:
        """See `ClusterDirectory`."""
        self._make_folder(home)
        with suppress(FileNotFoundError):
            (self.records / ended / name).rename(self.records / home / name)
        return await self.get(name)

    async def claim_round(self, name: str, user: str, seconds: float) -> bool:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        return self._rounds.use(name, user, seconds)

    async def maintain(self, sessions: Collection[SessionClaim], seconds: float) -> Collection[str]:  # noqa: ARG002 - they are here
        """See `ClusterDirectory`."""
        kept = {folder.name for folder in self._folders()}
        for home in self._orphans.left(kept.difference(await self.homes()), seconds):
            with suppress(FileNotFoundError):
                shutil.rmtree(self.records / home)
        return ()

    def _folders(self) -> list[Path]:
        try:
            _check_ours(self.records)
            return list(self.records.iterdir())
        except FileNotFoundError:  # a cleaner of temporary files has been here
            return []

    def _make_folder(self, home: str) -> None:
        self.records.mkdir(mode=0o700, exist_ok=True)
        _check_ours(self.records)
        (self.records / home).mkdir(exist_ok=True)

    def _place(self, ownership: SessionClaim) -> Path:
        return self.records / ownership.home / ownership.name

    def _read(self, ownership: SessionClaim) -> _File:
        try:
            return _decode(self._place(ownership).read_bytes())
        except FileNotFoundError:
            raise FencedError from None

    def _write_without(self, ownership: SessionClaim, file: _File, gone: Collection[str]) -> None:
        for name in gone:
            file.held.pop(name, None)
        self._write(ownership, file)

    def _write(self, ownership: SessionClaim, file: _File) -> None:
        place = self._place(ownership)
        written = place.with_name(f"{place.name}.new")
        written.write_bytes(_encode(file))
        written.rename(place)

    async def listen(
        self,
        home: str,
        accept: Accept,
        lease: Lease,  # noqa: ARG002 - it never lapses
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `ClusterDirectory`. Where somebody has removed the socket it listens on another one, as soon as there is a folder for it."""
        place = self.path / home
        async with trio.open_nursery() as nursery:
            await nursery.start(_serve, place, accept)
            task_status.started()
            while True:
                await trio.sleep(_LOOK_SECONDS)
                # The folder may go meanwhile, or there be no descriptor: the next look will do.
                with suppress(OSError):
                    if not place.exists() and _is_ours(self.path):
                        await nursery.start(_serve, place, accept)

    async def homes(self) -> Collection[str]:
        """See `ClusterDirectory`."""
        await trio.lowlevel.checkpoint()
        _check_ours(self.path)
        return [place.name for place in self.path.iterdir() if place.is_socket()]

    async def dial(self, home: str) -> trio.abc.Stream | None:
        """See `ClusterDirectory`."""
        try:
            _check_ours(self.path)
            return await trio.open_unix_socket(str(self.path / home))
        except (FileNotFoundError, ConnectionRefusedError):
            return None


def _check_ours(folder: Path) -> None:
    if not _is_ours(folder):
        raise PermissionError(errno.EACCES, f"{folder} is somebody else's")


def _is_ours(folder: Path) -> bool:
    """Whether a folder is this user's: where everybody may have one, somebody else may make one of its name once it is gone."""
    return folder.lstat().st_uid == os.geteuid()


async def _serve(place: Path, accept: Accept, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        await sock.bind(str(place))
        sock.listen()
        task_status.started()
        await trio.serve_listeners(accept, [trio.SocketListener(sock)])
