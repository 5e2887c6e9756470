"""A function that an author wrote, as it is called."""

import dis
import inspect
import types
from collections.abc import Callable
from typing import Any

import attrs

from mcpbus.features.origin import Origin
from mcpbus.features.signature import Signature


@attrs.frozen
class Function:
    """An author's function, ready to be called."""

    signature: Signature
    thread: bool = True
    """Whether a plain function runs in a worker thread."""
    timeout: float | None = None
    """Seconds after which a call is cancelled and `CallTimeoutError` is raised; None for no limit."""
    origins: tuple[Origin, ...] = attrs.field(default=(), kw_only=True)
    """The mounted servers through which it is offered, that which it was registered with first."""
    wrapped: bool = attrs.field(init=False)
    """Whether there is more to do than to call it: to end it in time, to make what it depends on, or to go through other servers."""
    waits: bool = attrs.field(init=False)
    """Whether a call may wait for something. One of an async function without an ``await`` cannot."""

    @wrapped.default
    def _wrapped(self) -> bool:
        return bool(self.timeout is not None or self.signature.dependencies is not None or self.origins)

    @waits.default
    def _waits(self) -> bool:
        return self.wrapped or _may_wait(self.signature.function)


def _may_wait(function: Callable[..., Any]) -> bool:
    """Whether calling an async function may suspend the task: only where its own code yields to it, which ``await`` does."""
    if isinstance(function, types.MethodType):
        function = function.__func__
    if not isinstance(function, types.FunctionType) or not function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return any(step.opname == "YIELD_VALUE" for step in dis.get_instructions(function))


def sole_cause(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one, which nurseries make of what is raised within; else `error`."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
