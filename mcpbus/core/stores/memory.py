"""An event store and a task store in memory: for one process, gone with it."""

from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec
import trio

from mcpbus.core.stores.protocol import Promise, Replay, TaskClaimedError
from mcpbus.core.tasks.record import TaskRecord
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_positive

_AT_ONCE: Final = 1_000
"""So many batches are forgotten before others run."""
_KEPT: Final = Promise(ended=True)


class _Batch(msgspec.Struct, eq=False, gc=False):
    """What was appended at once: one thing and not one for each event, and the garbage collector looks at none of it."""

    session: str
    stream: str
    first: int
    events: tuple[bytes, ...]
    final: bool
    came: float


@explained
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
        check_positive(type(self).__name__, max_items=max_items, max_bytes=max_bytes, max_age=max_age)
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_age = max_age
        # The batches of each stream, oldest first; those of all together, likewise, are a linked list, out of which a session's go
        # without a look at those of others.
        self._sessions: dict[str, dict[str, dict[_Batch, None]]] = {}
        self._batches: OrderedDict[_Batch, None] = OrderedDict()
        self._items = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._items

    def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> Awaitable[None]:
        """See `EventStore.append`."""
        now = trio.current_time()
        batch = _Batch(session, stream, first, tuple(events), final, now)
        self._sessions.setdefault(session, {}).setdefault(stream, {})[batch] = None
        self._batches[batch] = None
        self._items += len(events)
        self._bytes += sum(map(len, events))
        self._evict(now)
        return _KEPT

    async def replay(self, session: str, stream: str, after: int) -> Replay | None:
        """See `EventStore.replay`."""
        await trio.lowlevel.checkpoint()
        self._evict(trio.current_time())
        batches = list(self._sessions.get(session, {}).get(stream, ()))
        if not batches:
            return None
        events = [event for batch in batches for event in batch.events]
        seen = after - batches[0].first + 1
        return Replay(events[seen:], batches[-1].final) if 0 <= seen <= len(events) else None

    async def forget(self, session: str) -> None:
        """See `EventStore.forget`. It costs what that session stored, and lets others run meanwhile."""
        done = 0
        for batches in self._sessions.pop(session, {}).values():
            for batch in batches:
                if batch in self._batches:  # it may have had to go meanwhile
                    self._drop(batch)
                done += 1
                if done % _AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    def _evict(self, now: float) -> None:
        while self._batches:
            oldest = next(iter(self._batches))
            if oldest.came + self._max_age >= now and self._trim(oldest):
                return
            self._drop(oldest)
            streams = self._sessions.get(oldest.session, {})
            batches = streams.get(oldest.stream, {})
            if oldest in batches:  # unless its session is being forgotten
                del batches[oldest]
                if not batches:
                    del streams[oldest.stream]
                if not streams:
                    del self._sessions[oldest.session]

    def _trim(self, batch: _Batch) -> bool:
        """Drop the first events of a batch until the bounds hold, and return True; False if all of them have to go."""
        items, size = self._items, self._bytes
        if items <= self._max_items and size <= self._max_bytes:
            return True
        for gone, event in enumerate(batch.events):
            if items <= self._max_items and size <= self._max_bytes:
                batch.first += gone
                batch.events = batch.events[gone:]
                self._items, self._bytes = items, size
                return True
            items, size = items - 1, size - len(event)
        return False

    def _drop(self, batch: _Batch) -> None:
        del self._batches[batch]
        self._items -= len(batch.events)
        self._bytes -= sum(map(len, batch.events))


@explained
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
            raise TaskClaimedError
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
