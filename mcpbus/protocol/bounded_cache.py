"""What clients say again and again is read once, and remembered: so much of it, and nothing long. Nobody can fill memory with it."""

from collections.abc import Hashable
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST_REMEMBERED: Final = 256
LONGEST_REMEMBERED: Final = 1024
"""How many things are remembered in one place, and how many bytes of one at most."""


class BoundedCache(dict[K, V]):
    """What came of things that came before; all is forgotten once there are too many."""

    __slots__ = ()

    def keep(self, key: K, value: V, size: int) -> None:
        """Remember what came of something, unless it is too long.

        Args:
            key: What came.
            value: What came of it.
            size: How long the key is, in bytes.
        """
        if size <= LONGEST_REMEMBERED:
            if len(self) == MOST_REMEMBERED:
                self.clear()
            self[key] = value
