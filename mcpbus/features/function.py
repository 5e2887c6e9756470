"""A function that an author wrote, as it is called.

From which server a function comes that another one offers, which has mounted that.
"""

import dis
import inspect
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from mcpbus.features.signature import Signature


class MountOrigin(msgspec.Struct, frozen=True, eq=False):
    """What is different for a function because the server that it was registered with is mounted in another one."""

    server: object
    """The mounted server; what its lifespan yielded is found by it."""
    middleware: tuple[Callable[..., Any], ...]
    """The server's own, the first outermost."""
    item: Any
    """The tool or the like, as it was registered there."""
    name_below: Callable[[str], str]
    """How the server itself calls what is called."""


class Function:
    """An author's function, ready to be called.

    Attributes:
        signature: How it is called.
        thread: Whether a plain function runs in a worker thread.
        timeout: Seconds after which a call is cancelled and `CallTimeoutError` is raised; None for no limit.
        origins: The mounted servers through which it is offered; the one with which it was registered comes first.
        wrapped: Whether there is more to do than to call it: to end it in time, to make what it depends on, or to go through
            other servers.
        waits: Whether a call may wait for something. One of an async function without an ``await`` cannot.
    """

    __slots__ = ("origins", "signature", "thread", "timeout", "waits", "wrapped")

    def __init__(
        self,
        signature: Signature,
        thread: bool = True,
        timeout: float | None = None,
        origins: tuple[MountOrigin, ...] = (),
    ) -> None:
        self.signature = signature
        self.thread = thread
        self.timeout = timeout
        self.origins = origins
        self.wrapped = bool(timeout is not None or signature.dependencies is not None or origins)
        self.waits = self.wrapped or _may_wait(signature.function)

    @property
    def server(self) -> object:
        """The mounted server by way of which it is offered; None if it is the server's own."""
        return self.origins[-1].server if self.origins else None

    def through(self, origin: MountOrigin) -> "Function":
        """Return it as it is offered through one more mounted server."""
        return Function(self.signature, self.thread, self.timeout, (*self.origins, origin))


def _may_wait(function: Callable[..., Any]) -> bool:
    """Whether calling an async function may suspend the task: only where its own code yields to it, which ``await`` does."""
    if isinstance(function, types.MethodType):
        function = function.__func__
    if not isinstance(function, types.FunctionType) or not function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return _yields(function.__code__)


@lru_cache(maxsize=256)
def _yields(code: types.CodeType) -> bool:
    return any(step.opname == "YIELD_VALUE" for step in dis.get_instructions(code))
