"""A circuit breaker: a store that fails, or takes too long, is left alone for a while, by all together.

Without it each stream would find out for itself, one after the other, that a file is locked or a disk has died, and its
client would wait that long each time.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from mcpbus.core.containment import ExceptionsOnly
from mcpbus.core.limits import Limits
from mcpbus.core.reached_limits import ReachedLimits

_log = logging.getLogger("mcpbus")
T = TypeVar("T")


class StoreDownError(Exception):
    """A store failed, was too slow, or is left alone since it was. What has become of the call is not known."""


class _TooSlow(Exception):  # noqa: N818 - what it was
    """The store did not answer in time."""


class Breaker:
    """Calls to one store, each within a deadline.

    After the first that fails nobody else waits: the others in progress are given up, and those that would come later are
    refused at once. Past the pause one call tries again.

    Args:
        store: What it is, for the log.
        limits: How long a call may take, and how long the pause is.
        reached: Where it is noted that one took longer.
    """

    def __init__(self, store: str, limits: Limits, reached: ReachedLimits) -> None:
        self._store = store
        self._reached = reached
        self._deadline = limits.store_deadline
        self._pause = limits.store_pause
        self._calls: set[trio.CancelScope] = set()
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
        self._trying = tries = self._down
        scope = trio.CancelScope(shield=True, relative_deadline=self._deadline)
        self._calls.add(scope)
        failure: Exception | None = None
        try:
            with scope, ExceptionsOnly(f"the {self._store}"):
                result = await function()
        except Exception as error:  # noqa: BLE001 - a store is somebody else's code, and what goes on without it goes on
            failure = error
        finally:
            self._calls.discard(scope)
            if tries:
                self._trying = False
        if scope.cancelled_caught:
            failure = _TooSlow()
        if failure is not None:
            if tries or not self._down:  # else somebody else found out in the same moment
                self._trip(failure)
            raise StoreDownError(f"the {self._store} failed, or was too slow") from failure
        if tries:
            self._down = False
            _log.info("the %s answers again", self._store)
        return result

    def _trip(self, failure: Exception) -> None:
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
        for call in self._calls:
            call.cancel()
