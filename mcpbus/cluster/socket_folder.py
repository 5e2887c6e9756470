"""Processes of one machine, each with a Unix socket in a folder that they have in common, named by its home."""

import socket
from collections.abc import Collection
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
    """

    path: Path

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
