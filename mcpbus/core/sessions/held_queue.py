"""What a session keeps for a stream that is not open: bounded, collapsed, and for a limited time."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from mcpbus.core.memory_budget import MemoryAccount
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.core.receipt import MOVED, Fate, Location
from mcpbus.protocol.routes import CHANGES, MessageKind, Reason

MOVABLE: Final = frozenset(
    {MessageKind.SESSION_CUSTOM, MessageKind.SESSION_LOG, MessageKind.SESSION_WITHDRAWAL}
)
"""What another process can say as well. Changes it tells anew; a question is of use only where somebody waits for its answer."""

SayElsewhere: TypeAlias = Callable[[OutboundMessage, str | None], object]
"""Has a message said by another process that has its session; with its name in the store if that one may have found it there."""


class HeldMessageStore(Protocol):
    """Where another process finds what is held, should this one end."""

    def hold(self, message: OutboundMessage, seconds: float, /) -> str | None:
        """Keep a message for so many seconds, as soon as that can be, and return by which name; None if it is too late for that."""

    def forget(self, names: Collection[str], /) -> None:
        """Keep some no longer, as soon as that can be."""


class SessionHeldStore(HeldMessageStore, Protocol):
    """Where another process finds what is held for one session, should this one end. The session is told `Stored` of it."""

    def take(self, names: Collection[str], /) -> None:
        """Keep some no longer, since they are about to be sent; the session is told `HeldMessagesReleased` once that is so."""


class _HeldMessage(msgspec.Struct, gc=False):
    """A message that is held.

    Attributes:
        deadline: Until when.
        message: The message.
        name: Its name in the store; None if it is not there.
    """

    deadline: float
    message: OutboundMessage
    name: str | None


class HeldQueue:
    """Messages that wait for a stream, oldest first.

    A newer message takes the place of an older one with the same key, at the end. When there is no room the
    oldest goes.

    Args:
        limit: How many messages there may be.
        max_bytes: How many bytes of them.
        timeout: For how many seconds each is kept.
        account: Where they are counted.
        store: Where they are kept as well; None if nobody could go on with them.
    """

    __slots__ = ("_account", "_bytes", "_limit", "_max_bytes", "_queue", "_store", "_timeout")

    def __init__(
        self,
        limit: int,
        max_bytes: int,
        timeout: float,
        account: MemoryAccount,
        store: HeldMessageStore | None = None,
    ) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._account = account
        self._store = store
        self._bytes = 0
        self._queue: deque[_HeldMessage] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def deadline(self) -> float | None:
        """When the oldest message expires, in the caller's time; None if there is none."""
        return self._queue[0].deadline if self._queue else None

    @property
    def stored(self) -> Sequence[str]:
        """The names by which messages are in the store, or will be."""
        return [held.name for held in self._queue if held.name is not None]

    def put(self, message: OutboundMessage, now: float) -> str | None:
        """Keep a message, if it fits.

        Returns:
            The option whose bound was reached, so that a message was discarded; None as a rule.
        """
        if self._limit == 0:
            message.discard(Reason.NO_STREAM)
            return None
        if message.key is not None:
            self.discard(Reason.SUPERSEDED, lambda held: held.key == message.key)
        size = _size(message)
        if size > self._max_bytes:
            message.discard(Reason.OVERFLOW)
            return "outbox_bytes"
        full = None
        while (crowd := len(self._queue) >= self._limit) or self._bytes + size > self._max_bytes:
            full = "held_items" if crowd else "outbox_bytes"
            self._pop().discard(Reason.OVERFLOW)
        name = None
        if self._store is not None and message.kind in MOVABLE:
            name = self._store.hold(message, self._timeout)
        self._append(_HeldMessage(now + self._timeout, message, name), Location.HELD)
        return full

    def restore(self, message: OutboundMessage, name: str, deadline: float) -> None:
        """Keep a message that another process has kept, and that is in the store; it is newer than what is here."""
        self._append(_HeldMessage(deadline, message, name), Location.REPLICATED)

    def _append(self, held: _HeldMessage, place: Location) -> None:
        size = _size(held.message)
        held.message.receipt.move(place)
        self._queue.append(held)
        self._bytes += size
        self._account.hold(size)

    def take(self) -> list[OutboundMessage]:
        """Take everything, in order, to be sent. Nothing of it may be in the store any more."""
        taken = [held.message for held in self._queue]
        self._queue.clear()
        self._give_back(self._bytes)
        return taken

    def note_stored(self, names: Collection[str]) -> None:
        """Note that messages are in the store now."""
        for held in self._queue:
            if held.name in names:
                held.message.receipt.move(Location.REPLICATED)

    def expire(self, now: float) -> bool:
        """Discard what has been kept for too long, and return whether there was any."""
        expired = False
        while self._queue and self._queue[0].deadline <= now:
            self._pop().discard(Reason.EXPIRED)
            expired = True
        return expired

    def discard(self, reason: Reason, unwanted: Callable[[OutboundMessage], bool] = lambda _: True) -> None:
        """Discard what is `unwanted`; everything, unless told otherwise."""
        gone = [held for held in self._queue if unwanted(held.message)]
        self._queue = deque(held for held in self._queue if not unwanted(held.message))
        self._remove(gone)
        for held in gone:
            held.message.discard(reason)  # whoever asked may discard more

    def hand_over(self, fate: Fate) -> None:
        """Leave what is in the store to another process, and discard the changes, which that one tells anew.

        Args:
            fate: What becomes of what is left to that one.
        """
        moved = [held for held in self._queue if held.message.receipt.location is Location.REPLICATED]
        self._queue = deque(
            held for held in self._queue if held.message.receipt.location is not Location.REPLICATED
        )
        self._give_back(sum(_size(held.message) for held in moved))
        for held in moved:
            held.message.receipt.settle(fate)
        self.discard(Reason.SUPERSEDED, lambda held: held.kind in CHANGES)

    def pass_on(self, pass_on: SayElsewhere, *, kept: bool) -> None:
        """Pass what another process can say on to that, which has the session now; it has what is in the store, and tells changes anew.

        Args:
            pass_on: Has a message said there, with the name of what may be in the store.
            kept: Whether it has what is known to be in the store; if not, it may be gone from there.
        """
        if kept:
            self.hand_over(MOVED)
        passed = [held for held in self._queue if held.message.kind in MOVABLE]
        self._queue = deque(held for held in self._queue if held.message.kind not in MOVABLE)
        self._give_back(sum(_size(held.message) for held in passed))
        for held in passed:
            pass_on(held.message, held.name)
        self.discard(Reason.SUPERSEDED, lambda held: held.kind in CHANGES)

    def _pop(self) -> OutboundMessage:
        oldest = self._queue.popleft()
        self._remove([oldest])
        return oldest.message

    def _remove(self, gone: Sequence[_HeldMessage]) -> None:
        """Give back what messages took that are out of the queue, here and in the store."""
        self._give_back(sum(_size(held.message) for held in gone))
        names = [held.name for held in gone if held.name is not None]
        if names and self._store is not None:
            self._store.forget(names)

    def _give_back(self, size: int) -> None:
        self._bytes -= size
        self._account.release(size)


def _size(message: OutboundMessage) -> int:
    return len(message.data) + OVERHEAD_BYTES
