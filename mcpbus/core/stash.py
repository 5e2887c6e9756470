"""What a session keeps for a stream that is not open: bounded, collapsed, and for a limited time."""

from collections import deque
from collections.abc import Callable

from mcpbus.core.budget import Account
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.core.receipt import Place
from mcpbus.protocol.routes import Reason


class Stash:
    """Messages that wait for a stream, oldest first.

    A newer message takes the place of an older one with the same key, at the end. When there is no room the
    oldest goes.

    Args:
        limit: How many messages there may be.
        max_bytes: How many bytes of them.
        timeout: For how many seconds each is kept.
        account: Where they are counted.
    """

    __slots__ = ("_account", "_bytes", "_limit", "_max_bytes", "_queue", "_timeout")

    def __init__(self, limit: int, max_bytes: int, timeout: float, account: Account) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._account = account
        self._bytes = 0
        self._queue: deque[tuple[float, OutboundMessage]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def deadline(self) -> float | None:
        """When the oldest message expires, in the caller's time; None if there is none."""
        return self._queue[0][0] if self._queue else None

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
        message.receipt.move(Place.HELD)
        self._queue.append((now + self._timeout, message))
        self._bytes += size
        self._account.hold(size)
        return full

    def take(self) -> list[OutboundMessage]:
        """Take everything, in order, to be sent."""
        taken = [message for _, message in self._queue]
        self._queue.clear()
        self._give_back(self._bytes)
        return taken

    def expire(self, now: float) -> bool:
        """Discard what has been kept for too long, and return whether there was any."""
        expired = False
        while self._queue and self._queue[0][0] <= now:
            self._pop().discard(Reason.EXPIRED)
            expired = True
        return expired

    def discard(self, reason: Reason, unwanted: Callable[[OutboundMessage], bool] = lambda _: True) -> None:
        """Discard what is `unwanted`; everything, unless told otherwise."""
        gone = [message for _, message in self._queue if unwanted(message)]
        self._queue = deque(entry for entry in self._queue if not unwanted(entry[1]))
        for message in gone:
            self._give_back(_size(message))
            message.discard(reason)  # whoever asked may discard more

    def _pop(self) -> OutboundMessage:
        oldest = self._queue.popleft()[1]
        self._give_back(_size(oldest))
        return oldest

    def _give_back(self, size: int) -> None:
        self._bytes -= size
        self._account.release(size)


def _size(message: OutboundMessage) -> int:
    return len(message.data) + OVERHEAD_BYTES
