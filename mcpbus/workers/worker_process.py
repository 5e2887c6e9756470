"""A worker, as the process sees it that keeps it; see `mcpbus.workers.worker` for what the worker sees."""

import logging
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

import msgspec
import trio

from mcpbus.workers.worker import VARIABLE, Ready, WorkerConfig

_log = logging.getLogger("mcpbus")

BEGIN_SECONDS: Final = 300.0
"""A worker that has not begun to serve for as long is killed; what its author loads before may take minutes."""
HUNG_SECONDS: Final = 30.0
"""One that serves, and says nothing for as long, is killed."""
_TURNS: Final = 30
"""In so many parts that time passes."""


class WorkerProcess:
    """A process with this one's command line, which serves.

    Args:
        orders: What it is told.
        lock: A descriptor that it has as long as it lives; see `WorkerFolder`.
        on_ready: Called once it serves.

    Attributes:
        ready_at: When it has begun to serve, by trio's clock; `math.inf` before that.
        opened: Set when it has been started, or could not be: from then on it has the sockets that it is given.
        begun: Set when it serves, or has ended before.
        ended: To be set when nothing is left of it.
        status: Its exit status, if it could be started.
    """

    def __init__(self, orders: WorkerConfig, lock: int, on_ready: Callable[[Ready], object]) -> None:
        self.ready_at = math.inf
        self.opened = trio.Event()
        self.begun = trio.Event()
        self.ended = trio.Event()
        self.status = 0
        self._orders = orders
        self._lock = lock
        self._on_ready = on_ready
        self._process: trio.Process | None = None
        self._say, self._said = trio.open_memory_channel[bytes](math.inf)
        self._say.send_nowait(msgspec.json.encode(orders))
        self._told: signal.Signals | None = None

    @property
    def ready(self) -> bool:
        """Whether it has begun to serve."""
        return self.ready_at < math.inf

    @property
    def number(self) -> int:
        """See `WorkerConfig`."""
        return self._orders.number

    @property
    def home(self) -> str:
        """See `WorkerConfig`."""
        return self._orders.home

    @property
    def why(self) -> str:
        """How it has ended."""
        if self._process is None:
            return "not started"
        return f"exit status {self.status}" if self.status >= 0 else f"signal {-self.status}"

    def terminate(self) -> None:
        """Have it end in order."""
        self._tell(signal.SIGTERM)

    def kill(self) -> None:
        """Have it end at once."""
        self._tell(signal.SIGKILL)

    def tell_ended(self, home: str) -> None:
        """Tell it that another worker has ended."""
        self._say.send_nowait(home.encode())

    def _tell(self, signum: signal.Signals) -> None:
        self._told = signum
        if self._process is not None:
            self._process.send_signal(signum)

    async def run(self) -> None:
        """Start it, and return when it has ended, or could not be started."""
        try:
            process, ours = await self._open()
        except OSError as error:
            self.opened.set()
            _log.error("a worker could not be started: %s", error)
        else:
            self._process = process
            self.opened.set()
            if self._told is not None:
                process.send_signal(self._told)
            async with (
                trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as control,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._speak, control)
                nursery.start_soon(self._listen, process, control)
                self.status = await process.wait()
                nursery.cancel_scope.cancel()
        self.begun.set()

    async def _open(self) -> tuple[trio.Process, socket.socket]:
        """Start it; returns it, and what leads to it."""
        ours, theirs = socket.socketpair()
        with ExitStack() as unless_started, theirs:
            unless_started.callback(ours.close)
            process = await trio.lowlevel.open_process(
                [sys.executable, *sys.orig_argv[1:]],
                stdin=subprocess.DEVNULL,
                env={**os.environ, VARIABLE: f"{os.getpid()}:{theirs.fileno()}"},
                pass_fds=[theirs.fileno(), self._lock, self._orders.board, *self._orders.sockets],
                process_group=0,  # Ctrl-C is for the process that keeps them, which tells them in order
            )
            unless_started.pop_all()
        return process, ours

    async def _speak(self, control: trio.SocketStream) -> None:
        """Give it its orders, and tell it what is to be told later."""
        with suppress(trio.BrokenResourceError):
            async for line in self._said:
                await control.send_all(line + b"\n")

    async def _listen(self, process: trio.Process, control: trio.SocketStream) -> None:
        """Kill it when it is not heard of any more."""
        with suppress(trio.BrokenResourceError):
            said, lacking, patience = b"", "not begun to serve", BEGIN_SECONDS
            while True:
                data = await _hear(control, patience)
                if data is None:
                    _log.error("worker %d has %s for %g s, and is killed", self.number, lacking, patience)
                    process.kill()
                if not data:
                    return
                *lines, said = (said + data).split(b"\n")
                for line in filter(None, lines):
                    self._on_ready(msgspec.json.decode(line, type=Ready))
                    self.ready_at = trio.current_time()
                    self.begun.set()
                    lacking, patience = "said nothing", HUNG_SECONDS


async def _hear(control: trio.abc.ReceiveStream, patience: float) -> bytes | bytearray | None:
    """Receive what comes within so many seconds; None if nothing does.

    A container or machine that stands still stops all processes, and to this one all that time has passed when it goes on, perhaps
    before the others do. It is no more than one part of its patience then.
    """
    for _ in range(_TURNS):
        with trio.move_on_after(patience / _TURNS):
            return await control.receive_some()
    return None
