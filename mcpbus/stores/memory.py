"""An event store in memory: for one process, gone with it."""

from collections import deque
from collections.abc import Sequence

import trio

from mcpbus.stores.protocol import Replay


class _Stream:
    __slots__ = ("events", "finished", "first")

    def __init__(self, first: int) -> None:
        self.events: deque[bytes] = deque()
        self.first = first  # the number of the oldest event that is kept
        self.finished = False


class MemoryEventStore:
    """Keeps events in memory, the newest of them, within bounds over all streams together.

    Args:
        max_items: How many events.
        max_bytes: How many bytes of events.
        max_age: For how many seconds each.
    """

    def __init__(
        self, *, max_items: int = 100_000, max_bytes: int = 64 * 1024 * 1024, max_age: float = 3600.0
    ) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._sessions: dict[str, set[str]] = {}
        self._ages: deque[tuple[float, tuple[str, str], int, int]] = deque()  # when, stream, number, bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._ages)

    async def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> None:
        """See `EventStore.append`."""
        key = session, stream
        kept = self._streams.get(key)
        if kept is None:
            kept = self._streams[key] = _Stream(first)
            self._sessions.setdefault(session, set()).add(stream)
        now = trio.current_time()
        for number, event in enumerate(events, first):
            kept.events.append(event)
            self._ages.append((now, key, number, len(event)))
            self._bytes += len(event)
        kept.finished = final
        self._evict(now)
        await trio.lowlevel.checkpoint()

    async def replay(self, session: str, stream: str, after: int) -> Replay | None:
        """See `EventStore.replay`."""
        await trio.lowlevel.checkpoint()
        self._evict(trio.current_time())
        kept = self._streams.get((session, stream))
        if kept is None or not kept.first - 1 <= after < kept.first + len(kept.events):
            return None
        return Replay(list(kept.events)[after - kept.first + 1 :], kept.finished)

    async def forget(self, session: str) -> None:
        """See `EventStore.forget`."""
        for stream in self._sessions.pop(session, ()):
            kept = self._streams.pop((session, stream))
            self._bytes -= sum(map(len, kept.events))
        self._ages = deque(entry for entry in self._ages if entry[1][0] != session)
        await trio.lowlevel.checkpoint()

    def _evict(self, now: float) -> None:
        while self._ages and (
            len(self._ages) > self._max_items
            or self._bytes > self._max_bytes
            or self._ages[0][0] + self._max_age < now
        ):
            _, key, number, size = self._ages.popleft()
            kept = self._streams[key]
            kept.events.popleft()
            kept.first = number + 1
            self._bytes -= size
            if not kept.events:
                del self._streams[key]
                self._sessions[key[0]].discard(key[1])
                if not self._sessions[key[0]]:
                    del self._sessions[key[0]]
