"""An event store and a task store in memory: for one process, gone with it."""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec
import trio

from mcpbus.core.stores.promise import Promise
from mcpbus.core.stores.protocol import Replay, TaskTakenError
from mcpbus.core.tasks.record import TaskRecord

_AT_ONCE: Final = 1_000
"""So many events are forgotten before others run: about half a millisecond."""
_KEPT: Final = Promise(ended=True)


class _Stream:
    __slots__ = ("events", "finished", "first", "name", "session")

    def __init__(self, session: str, name: str, first: int) -> None:
        self.session = session
        self.name = name
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
        self._sessions: dict[str, dict[str, _Stream]] = {}
        # When each event came, oldest first. A linked list, out of which a session's events go without a look at those of others.
        self._ages: OrderedDict[tuple[_Stream, int], float] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._ages)

    def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> Awaitable[None]:
        """See `EventStore.append`."""
        streams = self._sessions.setdefault(session, {})
        kept = streams.get(stream)
        if kept is None:
            kept = streams[stream] = _Stream(session, stream, first)
        now = trio.current_time()
        for number, event in enumerate(events, first):
            kept.events.append(event)
            self._ages[kept, number] = now
            self._bytes += len(event)
        kept.finished = final
        self._evict(now)
        return _KEPT

    async def replay(self, session: str, stream: str, after: int) -> Replay | None:
        """See `EventStore.replay`."""
        await trio.lowlevel.checkpoint()
        self._evict(trio.current_time())
        kept = self._sessions.get(session, {}).get(stream)
        if kept is None or not kept.first - 1 <= after < kept.first + len(kept.events):
            return None
        return Replay(list(kept.events)[after - kept.first + 1 :], kept.finished)

    async def forget(self, session: str) -> None:
        """See `EventStore.forget`. It costs what that session stored, and lets others run meanwhile."""
        done = 0
        for stream in self._sessions.pop(session, {}).values():
            while stream.events:
                self._drop_oldest(stream)
                done += 1
                if done % _AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    def _evict(self, now: float) -> None:
        while self._ages and (
            len(self._ages) > self._max_items
            or self._bytes > self._max_bytes
            or next(iter(self._ages.values())) + self._max_age < now
        ):
            stream, _ = next(iter(self._ages))
            self._drop_oldest(stream)
            streams = self._sessions.get(stream.session, {})
            if not stream.events and streams.get(stream.name) is stream:
                del streams[stream.name]
                if not streams:
                    del self._sessions[stream.session]

    def _drop_oldest(self, stream: _Stream) -> None:
        del self._ages[stream, stream.first]
        self._bytes -= len(stream.events.popleft())
        stream.first += 1


class MemoryTaskStore:
    """Keeps tasks in memory, for one bus or several. How many, and how many bytes, is for the bus's limits to say."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[TaskRecord, bytes | None]] = {}
        self._open: set[str] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def put(self, record: TaskRecord, payload: bytes | None) -> None:
        """See `TaskStore.put`."""
        await trio.lowlevel.checkpoint()
        kept = self._tasks.get(record.id)
        if kept is not None and kept[0].bus != record.bus:
            raise TaskTakenError
        self._tasks[record.id] = record, payload

    async def payload(self, task_id: str) -> bytes | None:
        """See `TaskStore.payload`."""
        await trio.lowlevel.checkpoint()
        return self._tasks[task_id][1] if task_id in self._tasks else None

    async def delete(self, task_id: str) -> None:
        """See `TaskStore.delete`."""
        await trio.lowlevel.checkpoint()
        self._tasks.pop(task_id, None)

    async def take_up(self, bus: str) -> Sequence[TaskRecord]:
        """See `TaskStore.take_up`."""
        await trio.lowlevel.checkpoint()
        left = [kept for kept in self._tasks.values() if kept[0].bus not in self._open]
        taken = [(msgspec.structs.replace(record, bus=bus), payload) for record, payload in left]
        self._open.add(bus)
        self._tasks |= {record.id: (record, payload) for record, payload in taken}
        return [record for record, _ in taken]

    async def claim(self, task_id: str, ended: str, bus: str) -> TaskRecord | None:
        """See `TaskStore.claim`."""
        await trio.lowlevel.checkpoint()
        if task_id not in self._tasks:
            return None
        record, payload = self._tasks[task_id]
        if record.bus == ended:
            record = msgspec.structs.replace(record, bus=bus)
            self._tasks[task_id] = record, payload
        return record

    async def leave(self, bus: str) -> None:
        """See `TaskStore.leave`."""
        await trio.lowlevel.checkpoint()
        self._open.discard(bus)

    async def load(self) -> Sequence[TaskRecord]:
        """Return all tasks that are kept."""
        await trio.lowlevel.checkpoint()
        return [record for record, _ in self._tasks.values()]
