"""A task store in memory: for one process, gone with it."""

from collections.abc import Sequence

import msgspec
import trio

from mcpbus.tasks.record import TaskRecord


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

    async def leave(self, bus: str) -> None:
        """See `TaskStore.leave`."""
        await trio.lowlevel.checkpoint()
        self._open.discard(bus)

    async def load(self) -> Sequence[TaskRecord]:
        """Return all tasks that are kept."""
        await trio.lowlevel.checkpoint()
        return [record for record, _ in self._tasks.values()]
