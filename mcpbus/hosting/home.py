"""The place in which the code of a hosted server runs: trio itself, or an asyncio loop beside it."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar, TypeVarTuple

import trio

from mcpbus.core.concurrency import ReportErrors, WrapBaseExceptions, background

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_log = logging.getLogger("mcpbus")


class Home(Protocol):
    """The event loop of a hosted server, as seen from both sides.

    Attributes:
        name: The name of its async library, for people.
    """

    @property
    def name(self) -> str: ...

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Await an async function in the home. Call it in trio.

        A caller that is cancelled cancels the function, and waits for its end.

        Raises:
            RuntimeError: The function ended with `SystemExit` or the like, or another task cancelled it.
            Exception: The exception of the function.
        """

    def spawn(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Start an async function in a task of the home, and log its exception. Call it in trio."""

    def spawn_here(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Start an async function in a task of the home, as `spawn`. Call it in the home."""

    def post(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a function in trio soon, after all that was posted before. Call it in the home.

        Never waits. A result of `run` follows all that was posted before it. An exception of the function is logged.
        """

    async def ask(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Await an async function in trio. Call it in the home.

        Raises:
            Exception: The exception of the function.
        """

    async def flush(self) -> None:
        """Wait until trio has called all that was posted. Call it in the home."""

    def enter(
        self, manager: AbstractAsyncContextManager[Any]
    ) -> AbstractAsyncContextManager[tuple["Home", Any]]:
        """Enter a context manager in the home, in one task from entry to exit, and yield the home and its value. Call it in trio."""


def log_failure(function: Callable[..., object], error: BaseException) -> None:
    """Log that a function failed for whose result nothing waits."""
    _log.error("%r failed", function, exc_info=error)


class TrioHome:
    """Trio itself: for servers that use anyio or trio alone."""

    name = "trio"

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        with WrapBaseExceptions(f"{function!r}"):
            return await function(*args)

    def spawn(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        async def run() -> None:
            with ReportErrors(partial(log_failure, function)):
                await function(*args)

        if self._nursery is not None:
            self._nursery.start_soon(run)

    def spawn_here(self, function: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        self.spawn(function, *args)

    def post(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        with ReportErrors(partial(log_failure, function)):
            function(*args)

    async def ask(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        return await function(*args)

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def enter(self, manager: AbstractAsyncContextManager[Any]) -> AsyncIterator[tuple[Home, Any]]:
        async with manager as value, background() as nursery:
            self._nursery = nursery
            try:
                yield self, value
            finally:
                self._nursery = None
            nursery.cancel_scope.cancel()
