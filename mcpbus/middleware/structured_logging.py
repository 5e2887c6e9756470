"""One line of JSON for each call, for whatever reads logs."""

import logging
from typing import Any

import trio

from mcpbus.dispatch.runner import CallNext, Invocation
from mcpbus.features.errors import ToolError
from mcpbus.features.schemas import python_types
from mcpbus.middleware.base import check_logging
from mcpbus.protocol.errors import ProtocolError, sole_cause
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.printable import printable


@explained
class StructuredLoggingMiddleware:
    """Writes a line of JSON for each call when it has ended: what was called, by which request, and how it ended.

    The line is the message of a log record. It has the members ``method``, ``name``, ``request_id``, ``session`` (of clients that
    have one), ``outcome`` (ok, refused for a `ToolError` or `ProtocolError`, failed, or cancelled), ``error`` (the
    exception's class) and ``ms``.

    Args:
        logger: Whom to tell; ``mcpbus.calls`` if left out.
        level: At which level.
        include_arguments: Whether the line has the arguments too, which may be long, and secret.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        level: int = logging.INFO,
        *,
        include_arguments: bool = False,
    ) -> None:
        check_logging(type(self).__name__, logger, level)
        self._logger = logger or logging.getLogger("mcpbus.calls")
        self._level = level
        self._include_arguments = include_arguments

    async def __call__(self, invocation: Invocation, call_next: CallNext) -> Any:
        """Call, and tell; see `mcpbus.Middleware`."""
        began = trio.current_time()
        try:
            result = await call_next(invocation)
        except BaseException as error:
            self._tell(invocation, began, error)
            raise
        self._tell(invocation, began, None)
        return result

    def _tell(self, invocation: Invocation, began: float, error: BaseException | None) -> None:
        if not self._logger.isEnabledFor(self._level):
            return
        context = invocation.context
        line: dict[str, Any] = {
            "method": invocation.method,
            "name": invocation.name,
            "request_id": context.request_id,
        }
        if context.session is not None:
            line["session"] = context.session.id
        line["outcome"] = "ok"
        if error is not None:
            cause = sole_cause(error)
            line["outcome"] = _outcome(cause)
            line["error"] = type(cause).__name__
        line["ms"] = round((trio.current_time() - began) * 1000, 1)
        if self._include_arguments:
            line["arguments"] = _readable(dict(invocation.arguments))
        self._logger.log(self._level, "%s", printable(python_types.encode(line).decode()))


def _outcome(cause: BaseException) -> str:
    if isinstance(cause, trio.Cancelled):
        return "cancelled"
    return "refused" if isinstance(cause, ToolError | ProtocolError) else "failed"


def _readable(arguments: dict[str, Any]) -> Any:
    try:
        return python_types.to_builtins(arguments)
    except (TypeError, ValueError):
        return repr(arguments)
