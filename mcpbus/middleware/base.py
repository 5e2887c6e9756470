"""What middleware remembers from call to call, in each run of trio anew.

How middleware refuses a call.

What a middleware is given that tells a log.
"""

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from mcpbus.dispatch.runner import Invocation
from mcpbus.features.errors import ToolError
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError

T = TypeVar("T")


class PerRun(Generic[T]):
    """A value for each run of trio, made when it is first asked for: the clocks of two runs have nothing in common.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: trio.lowlevel.RunVar[T] = trio.lowlevel.RunVar("mcpbus middleware")

    def get(self) -> T:
        """Return that of this run."""
        try:
            return self._value.get()
        except LookupError:
            value = self._make()
            self._value.set(value)
            return value


def refusal(invocation: Invocation, why: str) -> ToolError | ProtocolError:
    """Return what to raise: the model reads why a tool was not called, and the client why anything else was not."""
    return ToolError(why) if invocation.tool is not None else ProtocolError(INTERNAL_ERROR, why)


def check_logging(owner: str, logger: Any, level: Any) -> None:
    """Refuse what is no logger and no level: that would come out with the first call.

    Raises:
        TypeError: the message says what to write.
    """
    if logger is not None and not isinstance(logger, logging.Logger | logging.LoggerAdapter):
        raise TypeError(f"{owner}: logger is a logger: write logging.getLogger({logger!r})")
    if not isinstance(level, int):
        raise TypeError(f"{owner}: level is a number: write logging.INFO or the like, not {level!r}")
