"""Several buses in one process that serve as one, with links in memory."""

import secrets
from collections.abc import Callable, Collection

import trio
import trio.testing

from mcpbus.cluster.directory import Accept, Cluster


class MemoryDirectory:
    """Knows buses of one process by their homes; a `Directory`.

    What happens to links can be made to happen: `cut` ends them, and `unreachable` are homes that nobody can connect to.

    Attributes:
        unreachable: They are there, and cannot be dialled.
    """

    def __init__(self) -> None:
        self.unreachable: set[str] = set()
        self._key = secrets.token_bytes(32)
        self._living: dict[str, Callable[[trio.abc.Stream], None]] = {}
        self._connections: list[trio.abc.Stream] = []

    def cluster(self) -> Cluster:
        """Return what makes another bus one of them: ``open_bus(server, cluster=directory.cluster())``."""
        return Cluster(directory=self, key=self._key)

    async def cut(self) -> None:
        """End all links."""
        connections, self._connections = self._connections, []
        for stream in connections:
            await trio.aclose_forcefully(stream)

    async def listen(
        self, home: str, accept: Accept, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Directory`."""
        async with trio.open_nursery() as nursery:
            self._living[home] = lambda stream: nursery.start_soon(accept, stream)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                del self._living[home]

    async def homes(self) -> Collection[str]:
        """See `Directory`."""
        await trio.lowlevel.checkpoint()
        return tuple(self._living)

    async def dial(self, home: str) -> trio.abc.Stream | None:
        """See `Directory`."""
        await trio.lowlevel.checkpoint()
        if home in self.unreachable:
            raise OSError("it cannot be reached")
        accept = self._living.get(home)
        if accept is None:
            return None
        ours, theirs = trio.testing.memory_stream_pair()
        self._connections.append(ours)
        accept(theirs)
        return ours
