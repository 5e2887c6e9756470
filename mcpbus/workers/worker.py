"""One of several processes that serve the same, as it was started by the process that keeps them; see `mcpbus.workers.supervisor`."""

import mmap
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Self, TypeAlias

import attrs
import msgspec
import trio

from mcpbus.cluster.directory import Cluster
from mcpbus.cluster.folder_directory import FolderDirectory
from mcpbus.core.concurrency import background
from mcpbus.serving.listeners import ConnectionCounts, SharedSockets

VARIABLE: Final = "MCPBUS_WORKER_OF"
"""The environment variable that makes a process a worker: the process that keeps it, and the descriptor over which it speaks to it."""
PING_SECONDS: Final = 1.0
_ORPHAN: Final = "the process that keeps this worker has ended"
SayWhere: TypeAlias = Callable[[str, Sequence[str]], Awaitable[None]]


class WorkerConfig(msgspec.Struct):
    """What a worker is told in the beginning.

    Attributes:
        number: Which of them it is.
        home: Its home.
        key: What they have in common.
        folder: Where they listen for each other.
        records: Where they keep their sessions.
        board: The descriptor of the board's file.
        sockets: The descriptors on which it is to listen for clients.
    """

    number: int
    home: str
    key: bytes
    folder: str
    records: str
    board: int
    sockets: list[int]


class Ready(msgspec.Struct):
    """What a worker tells when it serves.

    Attributes:
        name: What is served.
        urls: Where.
    """

    name: str
    urls: list[str]


def is_worker() -> bool:
    """Whether this process was started as a worker.

    Raises:
        SystemExit: It was, and the process that kept it has ended.
    """
    keeper, _, descriptor = os.environ.get(VARIABLE, "").partition(":")
    if keeper == str(os.getppid()):
        return True
    if descriptor and _is_socket(int(descriptor)):  # who has only the variable was started by a worker
        sys.exit(_ORPHAN)
    return False


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class Worker:
    """A process among those that serve the same.

    Args:
        orders: What it was told.
        control: Leads to the process that keeps it.

    Attributes:
        cluster: What makes it one of them, where they meet nowhere else.
        sharing: What it listens on.
    """

    def __init__(self, orders: WorkerConfig, control: socket.socket) -> None:
        self._control = control
        self._forget: Callable[[str], Awaitable[None]] | None = None
        self.cluster = Cluster(
            directory=FolderDirectory(Path(orders.folder), Path(orders.records)),
            keys=[orders.key],
            home=orders.home,
        )
        counts = ConnectionCounts(mmap.mmap(orders.board, 0), orders.number)
        os.close(orders.board)
        self.sharing = SharedSockets([socket.socket(fileno=number) for number in orders.sockets], counts)

    @classmethod
    def begin(cls) -> Self:
        """Take the orders of a process that was started as a worker; what it starts itself is none.

        Raises:
            SystemExit: The process that keeps it has ended.
        """
        _, _, descriptor = os.environ.pop(VARIABLE).partition(":")
        control = socket.socket(fileno=int(descriptor))
        control.set_inheritable(False)
        with control.makefile("rb", buffering=0) as lines:  # it takes nothing of what comes after
            told = lines.readline()
        if not told:
            control.close()
            sys.exit(_ORPHAN)
        orders = msgspec.json.decode(told, type=WorkerConfig)
        for number in orders.sockets:
            os.set_inheritable(number, False)
        return cls(orders, control)

    def join(self, cluster: Cluster) -> Cluster:
        """Return what makes it one of more than this machine has, which hear from it when another worker has ended."""
        self._forget = cluster.forget
        return attrs.evolve(cluster, home=self.cluster.home)

    @asynccontextmanager
    async def attend(self, shutdown: trio.Event) -> AsyncIterator[SayWhere]:
        """Be kept while the block lasts; yields what tells the process that keeps it where it serves.

        Args:
            shutdown: Set when that process has ended.
        """
        async with (
            trio.SocketStream(trio.socket.from_stdlib_socket(self._control)) as control,
            background() as nursery,
        ):

            async def say_where(name: str, urls: Sequence[str]) -> None:
                with suppress(trio.BrokenResourceError):
                    await control.send_all(msgspec.json.encode(Ready(name, list(urls))) + b"\n")
                    nursery.start_soon(_ping, control)

            nursery.start_soon(self._listen, control, shutdown, nursery)
            yield say_where
            nursery.cancel_scope.cancel()

    async def _listen(self, control: trio.SocketStream, shutdown: trio.Event, nursery: trio.Nursery) -> None:
        """Hear which other workers have ended, until the process that keeps them has."""
        heard = b""
        with suppress(trio.BrokenResourceError):
            while data := await control.receive_some():
                *homes, heard = (heard + data).split(b"\n")
                for home in homes:
                    if self._forget is not None:
                        nursery.start_soon(self._forget, home.decode())
        shutdown.set()


async def _ping(control: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError):
        while True:
            await trio.sleep(PING_SECONDS)
            await control.send_all(b"\n")
