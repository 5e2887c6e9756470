"""What came of things that come again. Of what comes once, such as the name of a request, nothing is kept but a hash."""

from collections.abc import Hashable
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LONGEST_RECALLED: Final = 2 * 1024
"""Bytes of a head that is remembered as it is: most of a long one are a token, with which its client comes again and again."""

MOST_RECALLED: Final = 2 * 1024
"""How many such heads are remembered: each user of a server has another one, and so has each session."""


class RecurringCache(dict[K, V]):
    """What came of things that came twice or more; of too many, the first ones are forgotten.

    Things that come once neither take memory nor put others out: a doorkeeper, as of TinyLFU, has only what was seen before come in.

    Args:
        most: How many are remembered, and of how many it is known that they were seen.
    """

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._seen: set[int] = set()

    def keep(self, key: K, value: V) -> None:
        """Remember what came of something that was not there, if it was seen before.

        Args:
            key: What came.
            value: What came of it.
        """
        seen = self._seen
        # Two things that have one hash are hardly ever there, and do no harm: one is then remembered at once.
        hashed = hash(key)
        if hashed in seen:
            if len(self) >= self._most:
                del self[next(iter(self))]
            self[key] = value
        else:
            if len(seen) >= self._most:
                seen.clear()
            seen.add(hashed)
