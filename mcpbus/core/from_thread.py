"""How what runs in worker threads has something done in the thread that trio runs in: in order, and mostly without waiting for it.

To wake that thread takes longer than most of what is to be done there, and to wait for it as long again. So what is posted by
any thread within a millisecond after something was is found there without another wake-up.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from threading import get_ident
from typing import Final, TypeVar

import trio

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.001
"""After which time it is looked again for what was posted, for as long as something was."""

_log = logging.getLogger("mcpbus")


class FromThread:
    """Does in the trio thread what other threads want. Made there."""

    __slots__ = ("_awake", "_posted", "_thread", "_token")

    def __init__(self) -> None:
        self._thread = get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self._posted: deque[Callable[[], object]] = deque()
        self._awake = False  # whether somebody will look without being woken

    def is_here(self) -> bool:
        """Tell whether this is the trio thread itself.

        Raises:
            RuntimeError: This is another one, in which another trio runs: nothing there may block.
        """
        if not trio.lowlevel.in_trio_run():
            return False
        if get_ident() != self._thread:
            raise RuntimeError(
                "a SyncContext blocks its thread, in which trio.run() was called: leave that out, write async def, and take ctx: Context"
            )
        return True

    def post(self, function: Callable[[], object]) -> None:
        """Have a function called soon, after all that was posted before; for worker threads. It is not waited for.

        Raises:
            trio.RunFinishedError: There is no trio any more.
        """
        self._posted.append(function)
        if not self._awake:
            self._awake = True
            try:
                self._token.run_sync_soon(self._wake)
            except trio.RunFinishedError:
                self._awake = False
                self._posted.clear()
                raise

    def run(self, function: Callable[[], T]) -> T:
        """Call a plain function after all that was posted, and return its result; from a worker thread or the trio thread itself."""
        if self.is_here():
            return function()
        return trio.from_thread.run_sync(partial(self._run, function), trio_token=self._token)

    def wait(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function after all that was posted, and wait for it in this worker thread.

        Raises:
            RuntimeError: This is the trio thread, which must not wait, or no worker thread.
            trio.Cancelled: What the thread is for was cancelled.
        """
        if self.is_here():
            raise RuntimeError(
                "a plain function that asks the client needs a worker thread: leave out thread=False"
            )
        try:
            trio.from_thread.check_cancelled()
        except RuntimeError:
            raise RuntimeError(
                "a plain function waits for its client in the thread that it was called in, where a cancellation ends that: "
                "ask there, and hand the answer to threads of your own"
            ) from None
        return trio.from_thread.run(partial(self._wait, function))

    def wait_briefly(self, function: Callable[[], Awaitable[object]], seconds: float) -> bool:
        """Run an async function after all that was posted, and wait for it in this worker thread for so many seconds at most.

        Unlike `wait` it goes on when what the thread is for was cancelled. Returns whether the function has ended.
        """
        return trio.from_thread.run(partial(self._wait_briefly, function, seconds), trio_token=self._token)

    def take(self) -> bool:
        """Call what was posted, now; in the trio thread. Returns whether anything was."""
        if not self._posted:
            return False
        for _ in range(len(self._posted)):
            try:
                self._posted.popleft()()
            except Exception:  # noqa: BLE001 - what others have posted is to be done
                _log.exception("what a thread had posted could not be done")
        return True

    def _run(self, function: Callable[[], T]) -> T:
        self.take()
        return function()

    async def _wait(self, function: Callable[[], Awaitable[T]]) -> T:
        self.take()
        return await function()

    async def _wait_briefly(self, function: Callable[[], Awaitable[object]], seconds: float) -> bool:
        with trio.move_on_after(seconds) as scope:
            await self._wait(function)
        return not scope.cancelled_caught

    def _wake(self) -> None:
        self.take()
        try:
            trio.lowlevel.spawn_system_task(self._look, context=Context())
        except RuntimeError:  # trio is about to end, and starts none any more
            self._awake = False
            self.take()

    async def _look(self) -> None:
        try:
            while True:
                await trio.sleep(_LOOK_SECONDS)
                if not self.take():
                    break
        finally:
            self._awake = False
            self.take()  # of one who posted before, and saw that somebody would look
