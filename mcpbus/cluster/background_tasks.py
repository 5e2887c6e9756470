"""What a process does for its sessions while nobody waits for it."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from mcpbus.core.concurrency import ReportErrors

_log = logging.getLogger("mcpbus")


class BackgroundTasks:
    """Tasks of which nobody waits for the end: what one raises is logged, and ends nothing else.

    Args:
        nursery: Where they run.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task."""
        self._nursery.start_soon(self._run, function, *args)

    async def _run(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        with ReportErrors(_report):
            await function(*args)


def _report(failure: BaseException) -> None:
    _log.error("what is kept of sessions could not be written", exc_info=failure)
