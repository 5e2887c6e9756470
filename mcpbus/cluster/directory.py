"""Who else serves, and how to reach them."""

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, TypeAlias

import attrs
import trio

from mcpbus.cluster.names import new_home

Accept: TypeAlias = Callable[[trio.abc.Stream], Awaitable[None]]


class Directory(Protocol):
    """Knows the processes that serve as one, each by its home."""

    async def listen(self, home: str, accept: Accept, *, task_status: trio.TaskStatus[None]) -> None:
        """Enter a process, and call `accept` for each connection to it, in a task; until cancelled.

        Args:
            home: The process.
            accept: Serves a connection, to its end.
            task_status: Told once it can be dialled.
        """

    async def homes(self) -> Collection[str]:
        """Return the processes that may be there."""

    async def dial(self, home: str) -> trio.abc.Stream | None:
        """Connect to a process; None if it has ended.

        Raises:
            OSError: It cannot be reached, though it may be there.
        """


@attrs.frozen(kw_only=True)
class Cluster:
    """What makes one process a part of several that serve as one.

    Attributes:
        directory: Knows them all.
        key: A secret that they have in common, and nobody else.
        home: This one; a name that none before it had.
    """

    directory: Directory
    key: bytes = attrs.field(repr=False)
    home: str = attrs.field(factory=new_home)
