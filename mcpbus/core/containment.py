"""Keeps what ends one thing from ending another: somebody else's code in here, and what serves everybody out there.

Whatever is raised by code that serves one is reported, and goes no further. Whatever serves many never ends without a word:
it would be as if the server were there, and nobody would be answered.
"""

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import NoReturn

import msgspec
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
