"""Errors are contained, background work has a nursery, and open things are counted.

An error of code that serves one client is reported and ends nothing else. A task that serves many never ends without a report: the
server would seem to run, and no client would get an answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import NoReturn

import msgspec
import trio
from mcpbus_actors import split_failure


class ReportErrors(msgspec.Struct):
    """Reports what its block raises, and ends it there: ``with ReportErrors(report): ...``.

    A `KeyboardInterrupt` and the cancellation of the task that is in the block go on; see `split_failure`.

    Attributes:
        report: Given what was raised, without what goes on.
    """

    report: Callable[[BaseException], object]

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _type: object, error: BaseException | None, _traceback: TracebackType | None) -> bool:
        """Report what was raised."""
        if error is None:
            return True
        failure, rest = split_failure(error)
        if failure is not None:
            self.report(failure)
        if rest is None or rest is error:
            return rest is None
        try:
            raise rest
        finally:
            del error, failure, rest  # their tracebacks hold this frame: without this, a cycle


class WrapBaseExceptions(msgspec.Struct):
    """Makes an exception of whatever its block raises that is none, for those who deal with exceptions.

    A `KeyboardInterrupt` and the cancellation of the task that is in the block go on as they are; see `split_failure`.

    Attributes:
        what: What is in the block, for people.
    """

    what: str

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _type: object, error: BaseException | None, _traceback: TracebackType | None) -> None:
        """Raise a RuntimeError in place of what is no exception."""
        if error is not None and not isinstance(error, Exception) and split_failure(error)[1] is None:
            raise RuntimeError(f"{self.what} raised {error!r}") from error


def run_all(what: str, steps: Iterable[Callable[[], object]]) -> None:
    """Run all of these, whatever one of them raises: for an end that many wait for.

    Args:
        what: What they are together, for people.
        steps: What is to be run, in this order.

    Raises:
        BaseExceptionGroup: What those raised that failed, once all were run.
    """
    failures: list[BaseException] = []
    for step in steps:
        with ReportErrors(failures.append):
            step()
    if failures:
        raise BaseExceptionGroup(f"{what} failed in part", failures)


async def run_forever(function: Callable[[], Awaitable[object]], what: str) -> NoReturn:
    """Run what serves many, and is to end by a cancellation alone.

    Args:
        function: Runs it.
        what: What it is, for people.

    Raises:
        RuntimeError: It has ended by itself, or by a `Cancelled` that was not meant for it, which a nursery would swallow.
        Exception: What it raised.
    """
    with WrapBaseExceptions(what):
        await function()
    raise RuntimeError(f"{what} has ended, though nothing has cancelled it")


class ActiveCounter:
    """How many are open, for whoever waits until the last one has done what it had to."""

    __slots__ = ("_count", "_none")

    def __init__(self) -> None:
        self._count = 0
        self._none: trio.Event | None = None

    def __len__(self) -> int:
        return self._count

    def opened(self) -> None:
        """Count one."""
        self._count += 1

    def ended(self) -> None:
        """Count one no longer."""
        self._count -= 1
        if not self._count and self._none is not None:
            self._none.set()

    async def wait_none(self) -> None:
        """Wait until none is open."""
        while self._count:
            if self._none is None:
                self._none = trio.Event()
            await self._none.wait()
            self._none = None


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose block raises what it raises, not a group around it.

    What the background raises still comes in a group. When the block raises, the background is cancelled.
    """
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as error:  # noqa: BLE001 - raised again below
            raised = error
            nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel a scope once something has happened."""
    await event.wait()
    scope.cancel()
