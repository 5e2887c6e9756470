"""Lines in the log about whatever keeps a program from its end, once it was told to end and its drain is over.

A handler or a lifespan that shields itself, or swallows its cancellation, is waited for as long as it likes; and when the loop has
ended, Python waits for every thread that is no daemon. Nothing but a second signal ends that. Whoever waits is to know it, and for what.

What blocks the loop is told of by `mcpbus.process.loop_monitor`.
"""

import logging
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import dropwhile, islice
from types import FrameType
from typing import Any, Final

import attrs
import trio
from mcpbus_actors import EagerTask

from mcpbus.core.concurrency import background
from mcpbus.process.stderr import log_without_blocking

_log = logging.getLogger("mcpbus")

PATIENCE_SECONDS: Final = 2.0
"""After the drain, and after the loop: what ends in this time is not spoken of."""

AGAIN_SECONDS: Final = 60.0

_MOST_TOLD: Final = 5
"""Of what keeps it, in one line."""

_MACHINERY: Final = frozenset({"trio", "outcome", "contextlib", "mcpbus", "mcpbus_actors"})
_STARTING: Final = frozenset({"threading", "concurrent"})


@asynccontextmanager
async def report_slow_shutdown(shutdown: trio.Event, drain_timeout: float) -> AsyncIterator[None]:
    """Have the log say which functions keep this task from its end, when it should have come long ago. For programs.

    Args:
        shutdown: Set when the program is to end.
        drain_timeout: How long it may take to, but for a few seconds.
    """
    async with background() as nursery:
        nursery.start_soon(_tell_of_holders, trio.lowlevel.current_task(), shutdown, drain_timeout)
        yield
        nursery.cancel_scope.cancel()


async def _tell_of_holders(program: trio.lowlevel.Task, shutdown: trio.Event, drain_timeout: float) -> None:
    await shutdown.wait()
    await trio.sleep(drain_timeout + PATIENCE_SECONDS)
    while True:
        functions = [where for task in _tasks_below(program) if (where := _function_called_by_us(task))]
        _log.warning(
            "the program has not ended, though its drain is over: it waits for %s; a second signal ends it at once",
            _listed(functions) or "what is none of its handlers, nor a lifespan",
        )
        await trio.sleep(AGAIN_SECONDS)


def _tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tasks_below(child)


def _function_called_by_us(task: trio.lowlevel.Task) -> str | None:
    """Return the author's function that a task of ours is in, and where that is; None if it is in none, or the task is the author's."""
    stack = _stack(task)
    if not stack or _package(stack[0][0]) not in _MACHINERY:
        return None  # who has started it waits for it
    theirs = list(dropwhile(lambda each: _package(each[0]) in _MACHINERY, stack))
    own = [each for each in theirs if _package(each[0]) not in _MACHINERY]
    return _place(own[0][0], *own[-1]) if own else None


def _stack(task: trio.lowlevel.Task) -> list[tuple[FrameType, int]]:
    """Return the frames that a task waits in, outermost first; also those of an eager task, which trio knows nothing of."""
    stack = list(task.iter_await_frames())
    while stack and isinstance(hosted := stack[-1][0].f_locals.get("self"), EagerTask):
        inner = list(trio.lowlevel.Task.iter_await_frames(_Awaited(hosted.coroutine)))  # type: ignore[arg-type]  # it asks for no more
        if not inner:
            break
        stack += inner
    return stack


@attrs.frozen
class _Awaited:
    coro: Coroutine[Any, Any, Any]


def tell_of_threads() -> None:
    """Have the log say which threads keep the process from its end, if they do. To be called when the loop has ended, in the main thread."""
    if _lasting_threads():
        threading.Thread(target=_tell_of_threads, name="mcpbus end", daemon=True).start()


def _tell_of_threads() -> None:
    time.sleep(PATIENCE_SECONDS)
    while not _python_waits():  # the program may do something else after it has served
        time.sleep(PATIENCE_SECONDS)
    frames = sys._current_frames()  # noqa: SLF001 - its documented way
    threads = [_told(each, frames.get(each.ident)) for each in _lasting_threads() if each.ident is not None]
    if threads:
        with ExitStack() as stack:
            # The log may be held up, and Python waits for its handlers at the very end. CPython 3.12 begins no thread any more then, so
            # that it is written as it is.
            with suppress(RuntimeError):
                stack.enter_context(log_without_blocking())
            _log.warning(
                "the program has not ended, though nothing is served any more: it waits for %s; a second signal ends it at once",
                _listed(threads),
            )


def _lasting_threads() -> list[threading.Thread]:
    """Return which threads Python waits for at its end."""
    main = threading.main_thread()
    return [each for each in threading.enumerate() if not each.daemon and each is not main]


def _python_waits() -> bool:
    """Whether the main thread has nothing to do but to wait for the others."""
    stack = traceback.walk_stack(sys._current_frames()[_main_ident()])  # noqa: SLF001 - its documented way
    return any(_package(frame) == "threading" and frame.f_code.co_name == "_shutdown" for frame, _ in stack)


def _main_ident() -> int:
    ident = threading.main_thread().ident
    assert ident is not None  # noqa: S101 - it runs
    return ident


def _told(thread: threading.Thread, innermost: FrameType | None) -> str:
    """Return which thread it is, with the author's function that it runs, if that is one of Python, and where that is."""
    stack = traceback.walk_stack(innermost) if innermost is not None else ()
    own = [each for each in stack if _package(each[0]) not in _STARTING]
    function = f", which runs {_place(own[-1][0], *own[0])}" if own else ""
    return f"thread {thread.name!r}{function}"


def _place(function: FrameType, innermost: FrameType, line: int) -> str:
    name, inner = function.f_code.co_qualname, innermost.f_code.co_qualname
    within = "" if innermost is function else f", in {inner}"
    return f"{name} ({innermost.f_code.co_filename}:{line}{within})"


def _listed(places: Iterable[str]) -> str:
    """Join them, each once."""
    distinct = list(dict.fromkeys(places))
    more = len(distinct) - _MOST_TOLD
    return ", ".join([*islice(distinct, _MOST_TOLD), *([f"and {more} more"] if more > 0 else [])])


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]
