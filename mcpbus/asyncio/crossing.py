"""The two ways across: what asyncio runs is awaited in trio, and what trio runs in asyncio.

Whoever waits is cancelled when the other side has ended, not before, as everywhere in trio: what was begun over there is never left
to itself.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar, TypeVarTuple

import trio

from mcpbus.asyncio.loop_thread import loop_of_this_run, run_of, start_loop
from mcpbus.core.concurrency import WrapBaseExceptions

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_ENDED = "the trio run beside this asyncio loop has ended"


async def to_asyncio(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Await an async function of asyncio in a task of trio, such as a handler.

    It runs in a task of the asyncio loop that the program runs on, where that serves `mcpbus.asyncio.asgi`; elsewhere in a loop in a
    thread, which is started by the first call and ends with the trio run. So what belongs to a loop, as a pool of connections
    does, is good for all calls. It has a copy of the caller's context variables.

    A caller that is cancelled cancels the function, and waits for its end.

    Args:
        function: Is called there, and what it returns awaited.
        *args: What it is called with.

    Raises:
        RuntimeError: No trio runs here, or the function was cancelled by somebody else, or has ended by what is no exception.
        Exception: What the function raised.
    """
    if not trio.lowlevel.in_trio_task():
        raise RuntimeError(
            "to_asyncio() is for what trio runs, such as a handler of a server; in a coroutine of asyncio await the function itself"
        )
    await trio.lowlevel.checkpoint_if_cancelled()
    return await run_in_loop(loop_of_this_run() or start_loop(), function, *args)


async def run_in_loop(
    loop: asyncio.AbstractEventLoop,
    function: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    waiting: set[trio.lowlevel.Task] | None = None,
) -> T:
    """Await an async function in a certain loop of asyncio, as `to_asyncio`.

    Args:
        loop: The loop.
        function: As for `to_asyncio`.
        *args: As for `to_asyncio`.
        waiting: Has the task while it waits, for `abandon`; None for a loop that outlasts the trio run.

    Raises:
        RuntimeError: As for `to_asyncio`; or the loop has ended.
    """
    waiting = set() if waiting is None else waiting
    task = trio.lowlevel.current_task()
    wake = partial(trio.lowlevel.current_trio_token().run_sync_soon, _wake, waiting, task)
    running: asyncio.Task[T] | None = None

    def start() -> None:
        nonlocal running
        running = loop.create_task(_run(function, args))
        running.add_done_callback(lambda _: wake())

    def cancel() -> None:
        if running is not None:  # as it is when this runs
            running.cancel()

    def abort(_: object) -> trio.lowlevel.Abort:
        try:
            loop.call_soon_threadsafe(cancel)
        except RuntimeError:  # the loop is closed, and wakes nothing any more
            waiting.discard(task)
            return trio.lowlevel.Abort.SUCCEEDED
        return trio.lowlevel.Abort.FAILED

    loop.call_soon_threadsafe(start, context=contextvars.copy_context())
    waiting.add(task)
    await trio.lowlevel.wait_task_rescheduled(abort)
    if running is None or not running.done():
        raise RuntimeError("the asyncio loop has ended")
    if running.cancelled():
        await trio.lowlevel.checkpoint_if_cancelled()
        raise RuntimeError(f"{function!r} was cancelled in asyncio")
    return running.result()


async def _run(function: Callable[[*Ts], Awaitable[T]], args: tuple[*Ts]) -> T:
    try:
        return await function(*args)
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # some would end the loop, as is meant where Ctrl-C is pressed
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        raise RuntimeError(f"{function!r} raised {error!r}") from error


def _wake(waiting: set[trio.lowlevel.Task], task: trio.lowlevel.Task) -> None:
    if task in waiting:
        waiting.remove(task)
        trio.lowlevel.reschedule(task)


def abandon(waiting: set[trio.lowlevel.Task]) -> None:
    """End the wait of tasks for a loop that has ended. Call it in trio."""
    while waiting:
        trio.lowlevel.reschedule(waiting.pop())


async def to_trio(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Await an async function of trio in a coroutine of asyncio.

    For a route of the application that serves `mcpbus.asyncio.asgi`, and for what `to_asyncio` runs: with it, a callback of
    asyncio can say something to the client, ``await to_trio(ctx.info, "half done")``.

    A caller that is cancelled cancels the function, and waits for its end.

    Args:
        function: Is called there, and what it returns awaited.
        *args: What it is called with.

    Raises:
        RuntimeError: No asyncio runs here, or no trio beside it, or that has ended.
        Exception: What the function raised.
    """
    if trio.lowlevel.in_trio_task():
        raise RuntimeError(
            "to_trio() is for coroutines of asyncio; in a task of trio await the function itself"
        )
    loop = asyncio.get_running_loop()
    trio_run = run_of(loop)
    if trio_run is None:
        raise RuntimeError(
            "no trio runs beside this asyncio loop: there is one in the lifespan of mcpbus.asyncio.asgi(server), and in what "
            "to_asyncio() runs"
        )
    done: asyncio.Future[T] = loop.create_future()
    scope = trio.CancelScope()

    async def run() -> None:
        settle: Callable[[], object] = partial(done.set_exception, RuntimeError(_ENDED))
        try:
            with scope, WrapBaseExceptions(f"{function!r}"):
                result = await function(*args)
                settle = partial(done.set_result, result)
            if scope.cancelled_caught:
                settle = done.cancel
        except Exception as error:  # noqa: BLE001 - raised over there
            settle = partial(done.set_exception, error)
        finally:
            with suppress(RuntimeError):  # the loop is closed, and no coroutine waits
                loop.call_soon_threadsafe(settle)

    trio_run.run_sync_soon(partial(trio.lowlevel.spawn_system_task, run, context=contextvars.copy_context()))

    def cancel() -> None:
        with suppress(trio.RunFinishedError):  # what came of it is on its way
            trio_run.run_sync_soon(scope.cancel)

    await outlast(done, cancel)
    return done.result()


async def outlast(future: asyncio.Future[T], cancel: Callable[[], object]) -> None:
    """Wait in asyncio until a future is done, even if cancelled meanwhile.

    Args:
        future: What is waited for. What it raises is left in it.
        cancel: Has it end soon; called when the caller is cancelled.

    Raises:
        asyncio.CancelledError: The caller was cancelled, and the future has a result nevertheless.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            cancel()
    if cancelled is not None and (future.cancelled() or future.exception() is None):
        raise cancelled
