"""Calls that failed for a reason that passes are made again."""

from typing import Any, Final

import trio

from mcpbus.dispatch.runner import CallNext, Invocation
from mcpbus.protocol.errors import sole_cause
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_numbers

_READING: Final = frozenset({"prompts/get", "resources/read", "completion/complete"})


@explained
class RetryMiddleware:
    """Makes a call again that failed for a reason that may pass, after a pause that grows.

    Only what bears repeating is: tools that say so (``annotations=ToolAnnotations(read_only_hint=True)`` or
    ``idempotent_hint=True``, or ``replay=True``), prompts, resources and completions; no requests of extensions.

    Args:
        max_retries: How often, at most.
        base_delay: Seconds before the first retry.
        backoff_multiplier: By how much each pause is longer than the last.
        max_delay: Seconds that a pause lasts at most.
        retry_exceptions: What passes.
    """

    def __init__(
        self,
        max_retries: int = 3,
        *,
        base_delay: float = 0.1,
        backoff_multiplier: float = 2.0,
        max_delay: float = 10.0,
        retry_exceptions: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, trio.TooSlowError),
    ) -> None:
        check_numbers(
            type(self).__name__,
            max_retries=max_retries,
            base_delay=base_delay,
            backoff_multiplier=backoff_multiplier,
            max_delay=max_delay,
        )
        kinds: Any = retry_exceptions
        # Which nobody would see before something has failed.
        if not isinstance(kinds, tuple) or not all(map(_is_exception, kinds)):
            raise TypeError(
                f"retry_exceptions is a tuple of exceptions: write (ConnectionError,), not {retry_exceptions!r}"
            )
        self._delays = [
            min(base_delay * backoff_multiplier**number, max_delay) for number in range(max_retries)
        ]
        self._passing = retry_exceptions

    async def __call__(self, invocation: Invocation, call_next: CallNext) -> Any:
        """Call, until it succeeds or there is no use in it; see `mcpbus.Middleware`."""
        if _bears_repeating(invocation):
            for delay in self._delays:
                try:
                    return await call_next(invocation)
                except Exception as error:
                    if not isinstance(sole_cause(error), self._passing):
                        raise
                await trio.sleep(delay)
        return await call_next(invocation)


def _bears_repeating(invocation: Invocation) -> bool:
    tool = invocation.tool
    return invocation.method in _READING if tool is None else tool.replay


def _is_exception(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)
