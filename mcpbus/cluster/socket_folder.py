"""Processes of one machine, each with a Unix socket in a folder that they have in common, named by its home."""

import shutil
import socket
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from mcpbus.cluster.directory import Accept


@attrs.frozen
class SocketFolder:
    """A `Directory` of the processes that listen in a folder.

    That one of them has ended is known at once: nobody listens on its socket any more.

    Attributes:
        path: The folder; who may look into it may speak to them.
        records: Another one, with a folder for each process, and in that a file for each session.
    """

    path: Path
    records: Path

    def keep(self, home: str, name: str, record: bytes) -> None:
        """See `Directory`."""
        folder = self.records / home
        folder.mkdir(exist_ok=True)
        written = folder / f"{name}.new"
        written.write_bytes(record)
        written.rename(folder / name)

    def drop(self, home: str, name: str) -> None:
        """See `Directory`."""
        (self.records / home / name).unlink(missing_ok=True)

    def owner(self, name: str) -> str | None:
        """See `Directory`."""
        for _ in range(2):  # it may have gone from one place to another one meanwhile
            for home in self.owners():
                if (self.records / home / name).exists():
                    return home
        return None

    def record(self, home: str, name: str) -> bytes | None:
        """See `Directory`."""
        with suppress(FileNotFoundError):
            return (self.records / home / name).read_bytes()
        return None

    def claim(self, name: str, owner: str, home: str) -> bool:
        """See `Directory`."""
        (self.records / home).mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            (self.records / owner / name).rename(self.records / home / name)
            return True
        return False

    def owners(self) -> Collection[str]:
        """See `Directory`."""
        return [folder.name for folder in self.records.iterdir()]

    def forget(self, home: str) -> None:
        """See `Directory`."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.records / home)

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
