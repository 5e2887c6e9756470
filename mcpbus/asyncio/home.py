"""An asyncio loop as the home of a hosted server; see `mcpbus.hosting.home.Home`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import trio

from mcpbus.asyncio.crossing import abandon, run_in_loop, to_trio
from mcpbus.asyncio.loop_thread import joined, loop_of_this_run, start_loop
from mcpbus.core.concurrency import ReportErrors
from mcpbus.hosting.home import Home, log_failure

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class AsyncioHome:
    """The asyncio loop beside this trio run: a loop in a thread, the host of a guest run, or a loop that runs elsewhere.

    Create it in trio. A loop in a thread starts with the first home of a run, and ends with the run.

    Args:
        loop: A loop that runs elsewhere; None for that of this run.
    """

    name = "asyncio"

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._loop = loop or loop_of_this_run() or start_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[trio.lowlevel.Task] = set()

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        return await run_in_loop(self._loop, function, *args, waiting=self._waiting)

    def note_end_of_loop(self) -> None:
        """End all waits for the loop, which has ended. Call it in any thread."""
        self.post(abandon, self._waiting)

    def spawn(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        self._loop.call_soon_threadsafe(lambda: self.spawn_here(function, *args))

    def spawn_here(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        async def run() -> None:
            try:
                await function(*args)
            except Exception as error:  # noqa: BLE001 - no task waits for it
                log_failure(function, error)

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def post(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        with suppress(trio.RunFinishedError):  # no client is left
            self._token.run_sync_soon(self._call, function, args)

    @staticmethod
    def _call(function: Callable[..., object], args: tuple[Any, ...]) -> None:
        with ReportErrors(partial(log_failure, function)):  # an exception here would end trio
            function(*args)

    async def ask(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        return await to_trio(function, *args)

    async def flush(self) -> None:
        done = self._loop.create_future()

        def settle() -> None:
            if not done.done():  # its task may be cancelled
                done.set_result(None)

        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._loop.call_soon_threadsafe, settle)
            await done

    @asynccontextmanager
    async def enter(self, manager: AbstractAsyncContextManager[Any]) -> AsyncIterator[tuple[Home, Any]]:
        entered, closing, values = trio.Event(), asyncio.Event(), []

        def note(value: Any) -> None:
            values.append(value)
            entered.set()

        async def hold() -> None:
            async with manager as value:
                self.post(note, value)
                await closing.wait()

        failed: list[Exception] = []
        raised: Exception | None = None

        async def run() -> None:
            try:
                await self.run(hold)
            except Exception as error:  # noqa: BLE001 - raised again below, without a group around it
                failed.append(error)
            if not closing.is_set():
                nursery.cancel_scope.cancel()
            entered.set()

        with joined(self._loop):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await entered.wait()
                if values and not failed:
                    try:
                        yield self, values[0]
                    except Exception as error:  # noqa: BLE001 - raised again below; the manager is left in good order first
                        raised = error
                    finally:
                        with suppress(RuntimeError):  # a loop that ended by itself has left the manager
                            self._loop.call_soon_threadsafe(closing.set)
        for failure in (raised, *failed):
            if failure is not None:
                raise failure
