"""A circuit breaker: a store that fails, or takes too long, is left alone for a while, by all together.

Without it each stream would find out for itself, one after the other, that a file is locked or a disk has died, and its
client would wait that long each time.
"""

import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import TypeVar

import attrs
import trio

from mcpbus.core.concurrency import ActiveCounter, WrapBaseExceptions
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.limits import Limits
from mcpbus.core.stores.protocol import Promise

_log = logging.getLogger("mcpbus")
T = TypeVar("T")


class StoreDownError(Exception):
    """A store failed, was too slow, or is left alone since it was. What has become of the call is not known."""


class _TooSlow(Exception):  # noqa: N818 - what it was
    """The store did not answer in time."""


@attrs.define(eq=False)
class _PendingCall:
    """A call whose end is heard of, without a task that waits for it.

    Attributes:
        promise: What the store does.
        deadline: When that is too slow.
        told: Called with this, and with what was raised.
    """

    promise: Promise
    deadline: float
    told: "Callable[[_PendingCall, BaseException | None], object]"

    def end(self) -> None:
        """Hear that it has ended."""
        self.told(self, self.promise.error)

    def cancel(self) -> None:
        """Give it up."""
        self.promise.withdraw()
        self.told(self, _TooSlow())


class CircuitBreaker:
    """Calls to one store, each within a deadline.

    After the first that fails nobody else waits: the others in progress are given up, and those that would come later are
    refused at once. Past the pause one call tries again.

    Args:
        store: What it is, for the log.
        limits: How long a call may take, and how long the pause is.
        reached: Where it is noted that one took longer.
    """

    def __init__(self, store: str, limits: Limits, reached: LimitMonitor) -> None:
        self._store = store
        self._exceptions_only = WrapBaseExceptions(f"the {store}")
        self._reached = reached
        self._deadline = limits.store_deadline
        self._pause = limits.store_pause
        self._calls: set[trio.CancelScope] = set()
        self._heard: dict[_PendingCall, None] = {}  # in the order of their deadlines
        self._watched = False
        self._begun = ActiveCounter()
        self._down = False
        self._trying = False
        self._until = 0.0

    @property
    def open(self) -> bool:
        """Whether the store is left alone now."""
        return self._down and (self._trying or trio.current_time() < self._until)

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call the store. A cancellation waits for it, for no longer than its deadline: what has become of it is known then.

        Raises:
            StoreDownError: See there. The log has said why.
        """
        if self.open:
            raise StoreDownError(f"the {self._store} is left alone after a failure")
        self._begun.opened()
        try:
            return await self._wait(self._enter(), function)
        finally:
            self._begun.ended()

    def begin(self, function: Callable[[], Awaitable[object]], told: Callable[[bool], object]) -> None:
        """Call the store as `call` does, for whoever cannot wait. No schedule point.

        Args:
            function: Calls it. Only where that returns no `Promise` a task waits for it, a system task of trio's.
            told: Called with whether the store has done it, now or later. It must not raise.
        """
        if self.open:
            told(False)
            return
        tries = self._enter()
        try:
            with self._exceptions_only:
                begun = function()
        except Exception as error:  # noqa: BLE001 - as below
            begun = Promise(ended=True, error=error)
        if not isinstance(begun, Promise):
            self._begun.opened()
            trio.lowlevel.spawn_system_task(self._wait_and_tell, tries, begun, told, context=Context())
        elif begun.ended:
            self._conclude(tries, begun.error)
            told(begun.error is None)
        else:
            self._begun.opened()
            heard = _PendingCall(
                begun, trio.current_time() + self._deadline, partial(self._hear, tries, told)
            )
            begun.told = heard.end
            self._heard[heard] = None
            if not self._watched:
                self._watched = True
                trio.lowlevel.spawn_system_task(self._watch, context=Context())

    async def wait_idle(self) -> None:
        """Wait until all has ended that was begun, for no longer than that may take."""
        await self._begun.wait_none()

    def _enter(self) -> bool:
        """Note that the store is called; return whether that is to try again."""
        self._trying = self._down
        return self._down

    def _conclude(self, tries: bool, failure: BaseException | None) -> None:
        """Take note of what came of a call."""
        if tries:
            self._trying = False
        if failure is not None:
            if tries or not self._down:  # else somebody else found out in the same moment
                self._trip(failure)
        elif tries:
            self._down = False
            _log.info("the %s answers again", self._store)

    async def _wait(self, tries: bool, function: Callable[[], Awaitable[T]]) -> T:
        scope = trio.CancelScope(shield=True, relative_deadline=self._deadline)
        self._calls.add(scope)
        failure: Exception | None = None
        try:
            with scope, self._exceptions_only:
                result = await function()
        except Exception as error:  # noqa: BLE001 - a store is somebody else's code, and what goes on without it goes on
            failure = error
        finally:
            self._calls.discard(scope)
            if tries:
                self._trying = False
        if scope.cancelled_caught:
            failure = _TooSlow()
        self._conclude(tries, failure)
        if failure is not None:
            raise StoreDownError(f"the {self._store} failed, or was too slow") from failure
        return result

    async def _wait_and_tell(
        self, tries: bool, begun: Awaitable[object], told: Callable[[bool], object]
    ) -> None:
        try:
            await self._wait(tries, lambda: begun)
        except StoreDownError:
            told(False)
        else:
            told(True)
        finally:
            self._begun.ended()

    def _hear(
        self, tries: bool, told: Callable[[bool], object], heard: _PendingCall, failure: BaseException | None
    ) -> None:
        del self._heard[heard]
        self._conclude(tries, failure)
        told(failure is None)
        self._begun.ended()

    async def _watch(self) -> None:
        """See to it that what is too slow is given up."""
        try:
            while self._heard:
                first = next(iter(self._heard))
                await trio.sleep_until(first.deadline)
                if first in self._heard:
                    first.cancel()
        finally:
            self._watched = False

    def _trip(self, failure: BaseException) -> None:
        if isinstance(failure, _TooSlow):
            self._reached.note(
                "store_deadline", None, f"the {self._store} is left alone for {self._pause:g} s"
            )
        elif not self._down:
            _log.error(
                "the %s failed, and is left alone for %g s", self._store, self._pause, exc_info=failure
            )
        self._down = True
        self._until = trio.current_time() + self._pause
        calls: tuple[trio.CancelScope | _PendingCall, ...] = (*self._calls, *self._heard)
        for call in calls:
            call.cancel()
