"""Notifications that wait for a program to take them, limited in number and in memory."""

from collections import deque
from typing import Any, Final, cast

import msgspec

from mcpbus.protocol.large import weigh

KEPT_NOTIFICATIONS: Final = 1024
"""Notifications that wait for a program that does not take them."""
KEPT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of memory that they take together, roughly."""


class _Kept(tuple[str, dict[str, Any]]):  # noqa: SLOT001 - a subclass of tuple cannot have a slot
    """The method and the params of one notification.

    Attributes:
        weight: The bytes of memory that it takes, roughly.
    """

    weight: int


class KeptNotifications:
    """A queue of notifications. At a limit it drops the oldest ones: the newest state of a resource or a task is worth most.

    Attributes:
        dropped: The number of notifications that were dropped.
    """

    __slots__ = ("_items", "_weight", "dropped")

    def __init__(self) -> None:
        self._items: deque[_Kept] = deque()
        self.dropped = 0
        # At least the weight of the items: a program that takes some out of `items` does not lower it.
        self._weight = 0

    @property
    def items(self) -> deque[tuple[str, dict[str, Any]]]:
        """The method and the params of each, the oldest first. A program may take some out of it."""
        return cast("deque[tuple[str, dict[str, Any]]]", self._items)

    def add(self, method: str, params: dict[str, Any], text: msgspec.Raw) -> bool:
        """Add a notification; return whether none was dropped, neither an older one nor this one, which may be too heavy alone.

        Args:
            method: Its method.
            params: Its params.
            text: The JSON of the params.
        """
        kept = _Kept((method, params))
        kept.weight = weigh(text)
        if kept.weight > KEPT_BYTES:
            self.dropped += 1
            return False
        dropped = self.dropped
        if self._weight + kept.weight > KEPT_BYTES:
            self._weight = sum(each.weight for each in self._items)
        while self._items and (
            len(self._items) >= KEPT_NOTIFICATIONS or self._weight + kept.weight > KEPT_BYTES
        ):
            self.take()
            self.dropped += 1
        self._items.append(kept)
        self._weight += kept.weight
        return self.dropped == dropped

    def take(self) -> tuple[str, dict[str, Any]]:
        """Take the oldest one, which is there."""
        taken = self._items.popleft()
        self._weight -= taken.weight
        return taken
