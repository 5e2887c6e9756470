"""A warning for ASGI hosts that run a server in several processes which share no sessions.

ASGI does not tell an application about other processes. The hosts do, on the stack of the process that they start: each of the
functions in `_STARTERS` is still running there, and holds the configuration with the number of processes. Nothing else is reliable:
the number may come from the command line, from ``WEB_CONCURRENCY``, from a file or from a program.
"""

import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import attrs

_log: Final = logging.getLogger("mcpbus")


@attrs.frozen
class Host:
    """The host that started this process.

    Attributes:
        name: Its name.
        processes: The number of processes among which it shares connections.
    """

    name: str
    processes: int


_STARTERS: Final[dict[tuple[str, str], Callable[[dict[str, Any]], Any]]] = {
    ("uvicorn._subprocess", "subprocess_started"): lambda names: names["config"].workers,
    ("hypercorn.asyncio.run", "asyncio_worker"): lambda names: names["config"].workers,
    ("hypercorn.asyncio.run", "uvloop_worker"): lambda names: names["config"].workers,
    ("hypercorn.trio.run", "trio_worker"): lambda names: names["config"].workers,
    ("gunicorn.arbiter", "spawn_worker"): lambda names: names["self"].num_workers,
}
"""The function with which each host starts a process, and the number of processes among its variables."""


def find_host() -> Host | None:
    """Return the host that started this process as one of several; None if there is none that is known."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - its documented way
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        count = _STARTERS.get((module, frame.f_code.co_name))
        if count is not None:
            processes = _count(count, frame)
            return Host(module.partition(".")[0], processes) if processes > 1 else None
        frame = frame.f_back
    return None


def warn_of_processes() -> None:
    """Log a warning if this process is one of several that an ASGI host started. For a server that has sessions."""
    host = find_host()
    if host is not None:
        _log.warning(
            "%s runs %d processes, which share no sessions: a client up to 2025-11-25 gets 404 whenever a request reaches another "
            'process. Run one process, `mcpbus serve --workers %d` instead of %s, or give sessions="stateless"',
            host.name,
            host.processes,
            host.processes,
            host.name,
        )


def _count(count: Callable[[dict[str, Any]], Any], frame: FrameType) -> int:
    try:
        return int(count(frame.f_locals))
    except (AttributeError, KeyError, TypeError, ValueError):  # another version of the host
        return 0
