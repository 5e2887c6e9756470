"""Several processes that serve the same, and the process that keeps them. That one runs nothing of what is served.

It listens for all of them, starts each with its own command line, and starts another one when one has ended. What ends it ends them,
in order; and when it is killed, they see that and end by themselves.
"""

import logging
import math
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import trio

from mcpbus.cluster.names import new_home
from mcpbus.serving.errors import CannotListenError
from mcpbus.serving.listening import listening
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.sharing import ABSENT, COUNT_BYTES
from mcpbus.serving.signals import end_by
from mcpbus.standard_error import log_aside
from mcpbus.worker import VARIABLE, Orders, Ready

_log = logging.getLogger("mcpbus")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STEADY_SECONDS: Final = 60.0
"""Who has served for as long is started again as if for the first time."""
HUNG_SECONDS: Final = 30.0
"""A worker that says nothing for as long is killed."""


def run_workers(count: int, options: ServeOptions) -> int:
    """Serve with several processes, each of which is this one's command line again, until a signal comes.

    Args:
        count: How many.
        options: Where to listen.

    Returns:
        The exit status: 0, or that of a worker that could not begin to serve.

    Raises:
        CannotListenError: An address cannot be listened on, or there are no Unix sockets, by which workers speak to one another.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise CannotListenError("there are no Unix sockets on this system, and so no workers: serve with one")
    with log_aside(), TemporaryDirectory(prefix="mcpbus-") as folder, listening(options) as sockets:
        keeper = _Keeper(count, Path(folder), sockets)
        trio.run(keeper.run)
        return keeper.status


class _Keeper:
    """Keeps the workers.

    Attributes:
        status: The exit status.
    """

    def __init__(self, count: int, folder: Path, sockets: Sequence[socket.socket]) -> None:
        self.status = 0
        self._count = count
        self._folder = folder / "links"
        self._folder.mkdir()
        self._records = folder / "sessions"
        self._records.mkdir()
        self._board = folder / "board"
        self._board.write_bytes(ABSENT.to_bytes(COUNT_BYTES, sys.byteorder) * count)
        self._sockets = sockets
        self._key = secrets.token_bytes(32)
        self._running: set[trio.Process] = set()
        self._ready = 0
        self._stopping = trio.Event()

    async def run(self) -> None:
        """Keep the workers until a signal comes, or they cannot begin."""
        signums = [signum for signum in _signals() if signal.getsignal(signum) != signal.SIG_IGN]
        with trio.open_signal_receiver(*signums) as received:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._obey, received)
                async with trio.open_nursery() as workers:
                    for number in range(self._count):
                        workers.start_soon(self._keep, number)
                nursery.cancel_scope.cancel()

    async def _obey(self, received: AsyncIterator[int]) -> None:
        async for signum in received:
            if self._stopping.is_set():
                for process in self._running:
                    process.kill()
                shutil.rmtree(self._folder.parent, ignore_errors=True)
                end_by(signum)
            self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for process in self._running:
            process.terminate()

    async def _keep(self, number: int) -> None:
        """Have one worker run, and another one when it has ended."""
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            begun = trio.current_time()
            status = await self._run_worker(number)
            if self._stopping.is_set():
                return
            if not self._ready:
                self.status = status if status > 0 else 1
                self._stop()
                return
            if trio.current_time() - begun >= _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            _log.error("worker %d has ended (%s); another one is started", number, _why(status))
            with trio.move_on_after(pause):
                await self._stopping.wait()
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run_worker(self, number: int) -> int:
        """Start a worker, and return its exit status when it has ended."""
        home = new_home()
        ours, theirs = socket.socketpair()
        shared = [sock.fileno() for sock in self._sockets]
        with theirs:
            process = await trio.lowlevel.open_process(
                [sys.executable, *sys.orig_argv[1:]],
                stdin=subprocess.DEVNULL,
                env={**os.environ, VARIABLE: f"{os.getpid()}:{theirs.fileno()}"},
                pass_fds=[theirs.fileno(), *shared],
                process_group=0,  # Ctrl-C is for the process that keeps them, which tells them in order
            )
        self._running.add(process)
        if self._stopping.is_set():
            process.terminate()
        orders = Orders(
            number, home, self._key, str(self._folder), str(self._records), str(self._board), shared
        )
        try:
            async with (
                trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as control,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._listen, process, control, msgspec.json.encode(orders) + b"\n")
                status = await process.wait()
                nursery.cancel_scope.cancel()
            return status
        finally:
            self._running.discard(process)
            self._forget(number, home)

    def _forget(self, number: int, home: str) -> None:
        (self._folder / home).unlink(missing_ok=True)
        with self._board.open("r+b") as board:
            board.seek(number * COUNT_BYTES)
            board.write(ABSENT.to_bytes(COUNT_BYTES, sys.byteorder))

    async def _listen(self, process: trio.Process, control: trio.SocketStream, orders: bytes) -> None:
        """Give a worker its orders, and kill it when it is not heard of any more."""
        with suppress(trio.BrokenResourceError):
            await control.send_all(orders)
            said, patience = b"", math.inf
            while True:
                data = None
                with trio.move_on_after(patience):
                    data = await control.receive_some()
                if data is None:
                    _log.error("a worker said nothing for %g s, and is killed", HUNG_SECONDS)
                    process.kill()
                if not data:
                    return
                *lines, said = (said + data).split(b"\n")
                for line in filter(None, lines):
                    self._take_ready(msgspec.json.decode(line, type=Ready))
                patience = HUNG_SECONDS

    def _take_ready(self, ready: Ready) -> None:
        self._ready += 1
        if self._ready == self._count:
            for url in ready.urls:
                said = f"{ready.name} is served at {url} by {self._count} workers (Ctrl-C to stop)"
                print(said, file=sys.stderr, flush=True)  # noqa: T201 - a program says so


def _signals() -> list[signal.Signals]:
    return [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def _why(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"
