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
        self._records: dict[str, dict[str, bytes]] = {}
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

    def keep(self, home: str, name: str, record: bytes) -> None:
        """See `Directory`."""
        self._records.setdefault(home, {})[name] = record

    def drop(self, home: str, name: str) -> None:
        """See `Directory`."""
        self._records.get(home, {}).pop(name, None)

    def owner(self, name: str) -> str | None:
        """See `Directory`."""
        return next((home for home, records in self._records.items() if name in records), None)

    def record(self, home: str, name: str) -> bytes | None:
        """See `Directory`."""
        return self._records.get(home, {}).get(name)

    def claim(self, name: str, owner: str, home: str) -> bool:
        """See `Directory`."""
        record = self._records.get(owner, {}).pop(name, None)
        if record is not None:
            self.keep(home, name, record)
        return record is not None

    def owners(self) -> Collection[str]:
        """See `Directory`."""
        return tuple(self._records)

    def forget(self, home: str) -> None:
        """See `Directory`."""
        self._records.pop(home, None)

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
                self._living.pop(home, None)

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
