"""Several processes that serve the same, and the process that keeps them. That one runs nothing of what is served.

It listens for all of them, starts each with its own command line, and starts another one when one has ended. What ends it ends them,
in order; and when it is killed, they see that and end by themselves. SIGHUP replaces them, one by one.
"""

import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import BinaryIO, Final

import trio

from mcpbus.cluster.signed_ids import new_home
from mcpbus.core.concurrency import background
from mcpbus.metrics import check_free
from mcpbus.process.stderr import ANNOUNCE, log_without_blocking
from mcpbus.serving.errors import CannotListenError
from mcpbus.serving.listeners import ABSENT, COUNT_BYTES, listening
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.signals import exit_by_signal
from mcpbus.workers.folder import WorkerFolder, worker_folder
from mcpbus.workers.worker import Ready, WorkerConfig
from mcpbus.workers.worker_process import WorkerProcess

_log = logging.getLogger("mcpbus")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STEADY_SECONDS: Final = 60.0
"""Who has served for as long is started again as if for the first time."""
_LOOK_SECONDS: Final = 1.0
"""Between two looks whether the folder is there in which workers find each other."""
_SLOW_SECONDS: Final = 30.0
"""Who has not begun to serve, or has not ended after its drain, for as long is spoken of; and the latter killed."""


def run_workers(
    count: int, options: ServeOptions, metrics: str | None = None, inspect: str | None = None
) -> int:
    """Serve with several processes, each of which is this one's command line again, until a signal comes.

    Args:
        count: How many.
        options: Where to listen.
        metrics: Where the first of them has its figures, if they have any.
        inspect: Where the first of them has its inspector, likewise.

    Returns:
        The exit status: 0, that of a worker that could not begin to serve, or 1 where one has not ended in order.

    Raises:
        CannotListenError: An address cannot be listened on, figures' included, or there are no Unix sockets, by which workers speak to one another.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise CannotListenError("there are no Unix sockets on this system, and so no workers: serve with one")
    with (
        log_without_blocking(),
        worker_folder() as folder,
        TemporaryFile(dir=folder.path) as board,
        listening(options) as sockets,
    ):
        if metrics is not None:
            check_free(metrics, count)
        if inspect is not None:
            check_free(inspect, count, option="inspect")
        keeper = _Supervisor(count, folder, board, sockets, options.drain_timeout)
        trio.run(keeper.run)
        return keeper.status


class _WorkerSlot:
    """Where one worker after the other serves.

    Attributes:
        worker: The one that does, or did last.
    """

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker


class _Supervisor:
    """Keeps the workers.

    Attributes:
        status: The exit status.
    """

    def __init__(
        self,
        count: int,
        folder: WorkerFolder,
        board: BinaryIO,
        sockets: Sequence[socket.socket],
        drain_timeout: float,
    ) -> None:
        self.status = 0
        self._count = count
        self._folder = folder
        # One more than there are, for who is about to take another one's place.
        self._free = [*range(count, -1, -1)]
        self._board = board.fileno()
        for number in self._free:
            self._note_absent(number)
        self._sockets = sockets
        self._drain_seconds = drain_timeout
        self._key = secrets.token_bytes(32)
        self._running: set[WorkerProcess] = set()
        self._ready = 0
        self._stopping = trio.Event()
        self._wanted = trio.Event()
        self._at_terminal = _has_terminal()
        self._mourned = ""  # why there is no folder, as it was told last

    async def run(self) -> None:
        """Keep the workers until a signal comes, or they cannot begin."""
        signums = [signum for signum in _signals() if signal.getsignal(signum) != signal.SIG_IGN]
        with trio.open_signal_receiver(*signums) as received:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._obey, received)
                nursery.start_soon(self._let_go)
                nursery.start_soon(self._keep_folder)
                async with trio.open_nursery() as workers:
                    places = [_WorkerSlot(self._start(workers)) for _ in range(self._count)]
                    nursery.start_soon(self._keep_replacing, places, workers)
                    for place in places:
                        workers.start_soon(self._keep, place, workers)
                nursery.cancel_scope.cancel()

    async def _obey(self, received: AsyncIterator[int]) -> None:
        async for signum in received:
            if self._stopping.is_set():
                for worker in self._running:
                    worker.kill()
                self._folder.remove()
                exit_by_signal(signum)
            elif signum == signal.SIGHUP and self._at_terminal == _has_terminal():
                self._wanted.set()
            else:
                self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for worker in self._running:
            worker.terminate()

    async def _let_go(self) -> None:
        """Have the sockets closed as soon as the workers drain. A client that connected later would wait for the end of that, in vain."""
        await self._stopping.wait()
        for worker in [*self._running]:
            await worker.opened.wait()
        for sock in self._sockets:
            sock.close()

    async def _keep(self, place: _WorkerSlot, workers: trio.Nursery) -> None:
        """Have one worker run, and another one when it has ended."""
        pause = _FIRST_PAUSE
        while True:
            worker = place.worker
            await worker.ended.wait()
            if self._stopping.is_set():
                if worker.ready and worker.status > 0:
                    _log.error("worker %d has not ended in order (%s)", worker.number, worker.why)
                    self.status = 1
                return
            if place.worker is not worker:
                continue  # another one has taken its place
            if not self._ready:
                self.status = worker.status if worker.status > 0 else 1
                self._stop()
                return
            if trio.current_time() - worker.ready_at >= _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            _log.error("worker %d has ended (%s); another one is started", worker.number, worker.why)
            with trio.move_on_after(pause):
                await self._stopping.wait()
            # It may be just when the pause is over, and the next one would be told by nobody.
            if self._stopping.is_set():
                return
            pause = min(2 * pause, _LONGEST_PAUSE)
            if place.worker is worker:
                place.worker = self._start(workers)

    async def _keep_folder(self) -> None:
        """Have them meet again where somebody has removed the folder in which they do."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            self._mend_folder()

    def _mend_folder(self) -> None:
        try:
            if self._folder.mend():
                _log.error(
                    "%s was removed, and is made anew: sessions that began before end with their workers",
                    self._folder.path,
                )
            self._mourned = ""
        except OSError as error:
            if self._mourned != str(error):
                self._mourned = str(error)
                _log.error(
                    "%s was removed, and cannot be made anew: %s; start the program again",
                    self._folder.path,
                    error,
                )

    def _start(self, workers: trio.Nursery) -> WorkerProcess:
        self._mend_folder()
        shared = [sock.fileno() for sock in self._sockets]
        links, sessions = str(self._folder.links), str(self._folder.sessions)
        orders = WorkerConfig(self._free.pop(), new_home(), self._key, links, sessions, self._board, shared)
        worker = WorkerProcess(orders, self._folder.lock, self._take_ready)
        self._running.add(worker)
        workers.start_soon(self._run, worker)
        return worker

    async def _run(self, worker: WorkerProcess) -> None:
        try:
            await worker.run()
        finally:
            self._running.discard(worker)
            with suppress(OSError):  # it is gone, or the folder is
                (self._folder.links / worker.home).unlink()
            self._note_absent(worker.number)
            self._free.append(worker.number)
            for other in self._running:
                other.tell_ended(worker.home)
            worker.ended.set()

    def _note_absent(self, number: int) -> None:
        os.pwrite(self._board, ABSENT.to_bytes(COUNT_BYTES, sys.byteorder), number * COUNT_BYTES)

    def _take_ready(self, ready: Ready) -> None:
        self._ready += 1
        if self._ready == self._count:
            for url in ready.urls:
                ANNOUNCE.get()(f"{ready.name} is served at {url} by {self._count} workers (Ctrl-C to stop)")

    # -- replacing them --------------------------------------------------------------------------

    async def _keep_replacing(self, places: Sequence[_WorkerSlot], workers: trio.Nursery) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            for place in places:
                if not await self._replace(place, workers):
                    break
            else:
                _log.info("all workers have been replaced")

    async def _replace(self, place: _WorkerSlot, workers: trio.Nursery) -> bool:
        """Have another worker take a place, and return whether it did: once it serves, the one before it ends in order."""
        if self._stopping.is_set():
            return False
        successor = self._start(workers)
        async with background() as nursery:
            nursery.start_soon(self._have_begin, successor)
            await successor.begun.wait()
            nursery.cancel_scope.cancel()
        if not successor.ready:
            if not self._stopping.is_set():
                why = successor.why
                _log.error(
                    "the workers are not replaced, and go on: a new one could not begin to serve (%s)", why
                )
            return False
        before, place.worker = place.worker, successor
        before.terminate()
        with trio.move_on_after(self._drain_seconds + _SLOW_SECONDS):
            await before.ended.wait()
            return True
        _log.error(
            "worker %d has not ended %g s after its drain, and is killed", before.number, _SLOW_SECONDS
        )
        before.kill()
        await before.ended.wait()
        return True

    async def _have_begin(self, successor: WorkerProcess) -> None:
        """Tell of a worker that does not begin to serve, and kill it when the workers are to be replaced again."""
        with trio.move_on_after(_SLOW_SECONDS):
            await self._wanted.wait()
        if not self._wanted.is_set():
            _log.warning(
                "a new worker has not begun to serve for %g s, and is waited for; SIGHUP starts another one instead",
                _SLOW_SECONDS,
            )
            await self._wanted.wait()
        successor.kill()


def _has_terminal() -> bool:
    """Whether the process belongs to a terminal; that it does no longer is also told by SIGHUP, and ends it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _signals() -> list[signal.Signals]:
    return [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
