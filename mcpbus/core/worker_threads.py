"""Threads that run one plain function after the other: trio starts each of them once, and not anew for each function.

`trio.to_thread.run_sync` enters, names and wakes a thread for each function, and is woken by it: two switches of threads, and at
each of trio's own reads and writes another that waits for its turn. Here functions are handed out together when all that was
read in a turn of trio has been looked at. The worker that is woken runs one after the other, and those that end meanwhile
are one wake of trio; none, where they end in the next turn.

Since trio started the thread, `trio.from_thread` works in the functions by trio's own means.

- There are as many workers as functions that have not ended, and a worker that takes one from a `queue.SimpleQueue` thereby
  wakes another for the next. So one that blocks keeps nobody waiting.
- `trio.from_thread.check_cancelled` tells whether the task was cancelled that started the thread. So where a call is cancelled
  that task is, and the thread ends with the function: it has nothing to do with what would come next.
"""

import inspect
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Final, Protocol, TypeVar

import attrs
import trio
from sniffio import current_async_library_cvar

T = TypeVar("T")

IDLE_SECONDS: Final = 10.0
"""How long a worker waits for a function before it ends, in real time; trio's own threads wait as long."""


class ThreadLimiter(Protocol):
    """What a function takes while it runs, as `trio.to_thread.run_sync` takes it of its limiter."""

    def acquire_on_behalf_of(self, borrower: object, /) -> Awaitable[None]:
        """Take it, once there is one."""

    def release_on_behalf_of(self, borrower: object, /) -> None:
        """Give it back."""


@attrs.define(eq=False)
class _ThreadJob:
    """A function that is to run in a thread, and what came of it."""

    function: Callable[[], Any]
    context: Context
    place: ThreadLimiter
    task: trio.lowlevel.Task | None
    """Whoever waits for it; None once nobody does."""
    scope: trio.CancelScope | None = None
    """Of the task that started the thread in which it runs; None until it is in one."""
    given_up: bool = False
    result: Any = None
    error: BaseException | None = None
    _claimed: Lock = attrs.Factory(Lock)

    def claim(self) -> bool:
        """Tell whether the caller decides how this ends: only the first does, be it the thread that ran it, or whoever gives it up."""
        return self._claimed.acquire(blocking=False)

    def run(self, scope: trio.CancelScope) -> bool:
        """Run it in this thread, unless it was given up. Returns whether it was not until it had ended."""
        self.scope = scope
        if self._claimed.locked():
            return False
        try:
            self.result = self.context.run(self.function)
            if inspect.iscoroutine(self.result):
                self.result.close()
                self.error = TypeError("a plain function has returned a coroutine, which nobody awaits")
        except BaseException as error:  # noqa: BLE001 - raised again where the function is waited for
            self.error = error
        return self.claim()


class WorkerThreads:
    """The worker threads of one trio run; made in it. They end with it, and when they have had nothing to do for a while.

    There are never more than functions that ran at once; how many may is up to the places that they take.

    Args:
        idle_seconds: See `IDLE_SECONDS`.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._token = trio.lowlevel.current_trio_token()
        self._unlimited = trio.CapacityLimiter(math.inf)
        self._new: list[_ThreadJob] = []
        self._handing_out = trio.lowlevel.ParkingLot()
        self._over = False  # whether nothing is handed out any more, since the run is about to end
        self._jobs: SimpleQueue[_ThreadJob | None] = SimpleQueue()  # None: a worker is to end
        self._ended: deque[_ThreadJob] = deque()
        self._awake = False  # whether trio's thread is about to look what has ended
        # Both without what was given up, and the workers that end with it. There are always as many workers as jobs.
        self._lock = Lock()
        self._unfinished = 0
        self._workers = 0
        trio.lowlevel.spawn_system_task(self._hand_out)

    def __len__(self) -> int:
        """How many workers there are, without those that end with a function that nobody waits for any more."""
        return self._workers

    @trio.lowlevel.enable_ki_protection
    async def run(self, function: Callable[[], T], place: ThreadLimiter) -> T:
        """Call a plain function in a thread, in a copy of this task's context variables.

        A cancelled caller does not wait for it. If it has not begun by then it does not; otherwise `trio.from_thread.check_cancelled`
        raises `trio.Cancelled` in it, and what comes of it is dropped.

        Args:
            function: The function.
            place: Is taken first, and given back when the function has ended, which may be after this has.

        Raises:
            BaseException: What the function raised.
            TypeError: It has returned a coroutine.
            RuntimeError: The system starts no more threads.
            trio.RunFinishedError: The trio run is about to end.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        context = copy_context()
        if current_async_library_cvar.get() is not None:
            # What runs in trio's thread does not run in the worker's.
            context.run(current_async_library_cvar.set, None)
        job = _ThreadJob(function, context, place, trio.lowlevel.current_task())
        await place.acquire_on_behalf_of(job)
        try:
            self._put(job)
        except BaseException:
            place.release_on_behalf_of(job)
            raise
        await trio.lowlevel.wait_task_rescheduled(partial(self._give_up, job))
        error, job.error = job.error, None
        if error is None:
            return job.result  # type: ignore[no-any-return]  # it is what the function returned
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, and through the thread's the job: no cycle

    # -- in trio's thread ------------------------------------------------------------------------

    def _put(self, job: _ThreadJob) -> None:
        if self._over:
            raise _run_finished()
        with self._lock:
            if self._unfinished >= self._workers:
                trio.lowlevel.spawn_system_task(self._serve)
                self._workers += 1
            self._unfinished += 1
        self._new.append(job)
        self._handing_out.unpark()

    async def _hand_out(self) -> None:
        """Hand out what is new, a turn later: a worker that is awake before has its turn at the next read or write, for one function."""
        try:
            while True:
                # A brief function ends while others have their turn. It need not wake this thread, which looks after that.
                self._awake = True
                self._hand_out_new()
                await trio.lowlevel.checkpoint()
                self._take()
                if not self._new:
                    await self._handing_out.park()
        finally:
            self._over = True
            self._take()
            self._hand_out_new()
            with suppress(Empty):
                while True:
                    self._fail_next(_run_finished())
            for _ in range(self._workers):
                self._jobs.put(None)

    def _hand_out_new(self) -> None:
        for job in self._new:
            self._jobs.put(job)
        self._new.clear()

    def _give_up(self, job: _ThreadJob, _: object) -> trio.lowlevel.Abort:
        job.task = None
        if job.claim():
            job.given_up = True
            with self._lock:
                self._unfinished -= 1
                self._workers -= 1
            if job.scope is not None:
                job.scope.cancel()
        return trio.lowlevel.Abort.SUCCEEDED

    async def _serve(self) -> None:
        """Start a worker, and be the task that it belongs to for trio."""
        scope = trio.CancelScope()
        try:
            with scope:
                await trio.to_thread.run_sync(
                    self._work,
                    scope,
                    thread_name="mcpbus thread",
                    abandon_on_cancel=True,
                    limiter=self._unlimited,
                )
        except Exception as error:  # noqa: BLE001 - raised by a call that was to have a thread
            with self._lock:
                self._workers -= 1
            with suppress(Empty):  # another worker has it
                self._fail_next(error)

    def _fail_next(self, error: Exception) -> None:
        """Fail the call whose turn it is.

        Raises:
            queue.Empty: There is none.
        """
        job = self._jobs.get_nowait()
        if job is None:
            return
        if job.claim():
            job.error = error
        else:
            with self._lock:
                self._workers += 1  # the one that would have ended with it
        self._ended.append(job)
        self._take()

    def _take(self) -> None:
        """Have those go on whose functions have ended."""
        self._awake = False
        while self._ended:
            job = self._ended.popleft()
            if not job.given_up:
                self._unfinished -= 1
            job.place.release_on_behalf_of(job)
            if job.task is not None:
                trio.lowlevel.reschedule(job.task)

    # -- in a worker -----------------------------------------------------------------------------

    def _work(self, scope: trio.CancelScope) -> None:
        """Run functions until there will be none any more for this thread."""
        goes_on = True
        while goes_on and (job := self._next()) is not None:
            goes_on = job.run(scope)
            self._ended.append(job)
            del job  # what the function was given and has returned; the next may be long in coming
            if not self._awake:
                self._awake = True
                try:
                    self._token.run_sync_soon(self._take)
                except trio.RunFinishedError:
                    return

    def _next(self) -> _ThreadJob | None:
        while True:
            try:
                return self._jobs.get(timeout=self._idle_seconds)
            except Empty:
                with self._lock:
                    if self._workers > self._unfinished:
                        self._workers -= 1
                        return None


def _run_finished() -> trio.RunFinishedError:
    return trio.RunFinishedError("the trio run is about to end, and starts no function in a thread any more")


_of_this_run: Final[trio.lowlevel.RunVar[WorkerThreads]] = trio.lowlevel.RunVar("mcpbus worker threads")


def worker_threads() -> WorkerThreads:
    """Return the worker threads of this trio run."""
    try:
        return _of_this_run.get()
    except LookupError:
        threads = WorkerThreads()
        _of_this_run.set(threads)
        return threads
