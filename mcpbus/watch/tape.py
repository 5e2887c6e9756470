"""The tape: the newest messages of a bus, in rings that no single call and no single recipient can flush."""

from collections import Counter, deque
from collections.abc import Hashable, Iterator
from typing import Final

from mcpbus.core.receipt import Fate
from mcpbus.core.request_context import Life
from mcpbus.core.watching import WatchedReceipt

OWN: Final = 32
"""Messages of one call, or to one recipient in a second, that are on the common ring. Further ones have a ring of that length."""
_MOST_RINGS: Final = 200
_MOST_COUNTED: Final = 2_000
_WINDOW_SECONDS: Final = 1.0

FateKey = tuple[str, tuple[str, str | None] | None, Fate]


class Tape:
    """The newest messages, and how many there were of which fate.

    Args:
        size: How many messages the common ring holds.

    Attributes:
        made: How many messages there were, replies apart that belong to a call without other messages.
        fates: How many messages got a fate, by method, by method and name of the request that caused them, and by fate.
    """

    def __init__(self, size: int) -> None:
        self.made = 0
        self.fates: Counter[FateKey] = Counter()
        self._common: deque[WatchedReceipt] = deque(maxlen=size)
        self._rings: dict[Hashable, deque[WatchedReceipt]] = {}
        self._told: Counter[Hashable] = Counter()
        self._window = 0.0

    def __len__(self) -> int:
        return len(self._common) + sum(map(len, self._rings.values()))

    def __iter__(self) -> Iterator[WatchedReceipt]:
        """Iterate over what it holds, newest first."""
        found = [*self._common, *(receipt for ring in self._rings.values() for receipt in ring)]
        found.sort(key=_number, reverse=True)
        return iter(found)

    @property
    def first(self) -> int | None:
        """The number of the oldest message on the common ring: it has all since then but for floods."""
        return self._common[0].number if self._common else None

    def loud(self) -> list[Life]:
        """Return the calls that have rings of their own, the one that began its ring last first."""
        lives = (ring[-1].life for ring in self._rings.values() if ring and ring[-1].target is None)
        return [life for life in lives if life is not None][::-1]

    def add(self, receipt: WatchedReceipt) -> None:
        """Add a message that was just emitted."""
        life = receipt.life
        if receipt.reply and (life is None or not life.said):
            return
        self.made += 1
        receipt.number = self.made
        if life is not None and not receipt.reply:
            life.said += 1
            if life.said > OWN:
                self._ring(life.number).append(receipt)
                return
        elif receipt.target is not None and self._is_flood(receipt):
            self._ring((receipt.target, receipt.method)).append(receipt)
            return
        self._common.append(receipt)

    def _is_flood(self, receipt: WatchedReceipt) -> bool:
        if receipt.made - self._window > _WINDOW_SECONDS:
            self._window = receipt.made
            self._told.clear()
        key = receipt.target, receipt.method
        self._told[key] += 1
        return self._told[key] > OWN

    def _ring(self, key: Hashable) -> deque[WatchedReceipt]:
        ring = self._rings.get(key)
        if ring is None:
            if len(self._rings) >= _MOST_RINGS:
                del self._rings[next(iter(self._rings))]
            ring = self._rings[key] = deque(maxlen=OWN)
        return ring

    def count(self, method: str, life: Life | None, fate: Fate) -> None:
        """Count a message that got a fate."""
        key = method, None if life is None else (life.method, life.name), fate
        if key not in self.fates and len(self.fates) >= _MOST_COUNTED:
            key = "(other)", None, fate
        self.fates[key] += 1


def _number(receipt: WatchedReceipt) -> int:
    return receipt.number
