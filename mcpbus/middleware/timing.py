"""How long calls take, for the log."""

import logging
from typing import Any

import trio

from mcpbus.dispatch.runner import CallNext, Invocation
from mcpbus.middleware.base import check_logging
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.printable import printable


@explained
class TimingMiddleware:
    """Tells the log how long each call took, also where it failed or was cancelled.

    The time in which a call waits for its client is included.

    Args:
        logger: Whom to tell; ``mcpbus.timing`` if left out.
        level: At which level.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        check_logging(type(self).__name__, logger, level)
        self._logger = logger or logging.getLogger("mcpbus.timing")
        self._level = level

    async def __call__(self, invocation: Invocation, call_next: CallNext) -> Any:
        """Call, and tell; see `mcpbus.Middleware`."""
        began = trio.current_time()
        try:
            result = await call_next(invocation)
        except BaseException:
            self._tell(invocation, "ended without a result after", began)
            raise
        self._tell(invocation, "took", began)
        return result

    def _tell(self, invocation: Invocation, what: str, began: float) -> None:
        took = (trio.current_time() - began) * 1000
        self._logger.log(
            self._level,
            "%s %s %s %.1f ms",
            invocation.method,
            printable(invocation.name, lines=False),
            what,
            took,
        )
