"""Processes of one machine, each with a Unix socket in a folder that they have in common, named by its home."""

import shutil
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from mcpbus.cluster.directory import Accept, FencedError, Kept, Ownership
from mcpbus.cluster.orphans import Orphans
from mcpbus.cluster.used_rounds import UsedRounds


@attrs.frozen
class SocketFolder:
    """A `Directory` of the processes that listen in a folder.

    That one of them has ended is known at once: nobody listens on its socket any more. Before, nobody takes anything of it over. So who has a
    session is told by the folder in which its file is, and epochs say nothing.

    Attributes:
        path: The folder; who may look into it may speak to them.
        records: Another one, with a folder for each process, and in that a file for each session.
    """

    path: Path
    records: Path
    _rounds: UsedRounds = attrs.field(init=False, repr=False)
    _orphans: Orphans = attrs.field(factory=Orphans, init=False, repr=False)

    @_rounds.default
    def _in_rounds(self) -> UsedRounds:
        return UsedRounds(self.path / "rounds")

    async def create(self, ownership: Ownership, record: bytes) -> None:
        """See `Directory`."""
        await trio.lowlevel.checkpoint()
        (self.records / ownership.home).mkdir(exist_ok=True)
        self._write(ownership, record)

    async def update(self, ownership: Ownership, record: bytes) -> None:
        """See `Directory`."""
        await trio.lowlevel.checkpoint()
        if not self._place(ownership).exists():
            raise FencedError
        self._write(ownership, record)

    async def remove(self, ownership: Ownership) -> None:
        """See `Directory`."""
        await trio.lowlevel.checkpoint()
        self._place(ownership).unlink(missing_ok=True)

    async def look(self, name: str) -> Kept | None:
        """See `Directory`."""
        await trio.lowlevel.checkpoint()
        for _ in range(2):  # it may have gone from one place to another one meanwhile
            for folder in self.records.iterdir():
                with suppress(FileNotFoundError):
                    return Kept(Ownership(name, folder.name), (folder / name).read_bytes())
        return None

    async def claim(self, name: str, ended: str, home: str) -> Kept | None:
        """See `Directory`."""
        (self.records / home).mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            (self.records / ended / name).rename(self.records / home / name)
        return await self.look(name)

    async def use_round(self, name: str, user: str, seconds: float) -> bool:
        """See `Directory`."""
        await trio.lowlevel.checkpoint()
        return self._rounds.use(name, user, seconds)

    async def tend(self, sessions: Collection[Ownership], seconds: float) -> None:  # noqa: ARG002 - they are here
        """See `Directory`."""
        kept = {folder.name for folder in self.records.iterdir()}
        for home in self._orphans.left(kept.difference(await self.homes()), seconds):
            with suppress(FileNotFoundError):
                shutil.rmtree(self.records / home)

    def _place(self, ownership: Ownership) -> Path:
        return self.records / ownership.home / ownership.name

    def _write(self, ownership: Ownership, record: bytes) -> None:
        place = self._place(ownership)
        written = place.with_name(f"{place.name}.new")
        written.write_bytes(record)
        written.rename(place)

    async def listen(
        self, home: str, accept: Accept, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Directory`."""
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            await sock.bind(str(self.path / home))
            sock.listen()
            task_status.started()
            await trio.serve_listeners(accept, [trio.SocketListener(sock)])

    async def homes(self) -> Collection[str]:
        """See `Directory`."""
        await trio.lowlevel.checkpoint()
        return [place.name for place in self.path.iterdir() if place.is_socket()]

    async def dial(self, home: str) -> trio.abc.Stream | None:
        """See `Directory`."""
        try:
            return await trio.open_unix_socket(str(self.path / home))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
