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

    # What follows does not wait. Each of it may raise an OSError.

    def keep(self, home: str, name: str, record: bytes) -> None:
        """Keep what is known of a session that a process has, in place of what was kept of it."""

    def drop(self, home: str, name: str) -> None:
        """Forget a session that a process had."""

    def owner(self, name: str) -> str | None:
        """Return which process has a session, or had it when it ended; None if there is no such session."""

    def record(self, home: str, name: str) -> bytes | None:
        """Return what is kept of a session that a process has; None if it has it no more."""

    def claim(self, name: str, owner: str, home: str) -> bool:
        """Give a session of a process that has ended to another one, and return whether nobody else was faster."""

    def owners(self) -> Collection[str]:
        """Return the processes of which sessions may be kept."""

    def forget(self, home: str) -> None:
        """Forget all sessions of a process that has ended."""


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
