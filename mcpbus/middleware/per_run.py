"""What middleware remembers from call to call, in each run of trio anew."""

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

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
