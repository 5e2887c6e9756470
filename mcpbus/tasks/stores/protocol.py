"""What a task store does, and no more than that."""

from collections.abc import Sequence
from typing import Protocol

from mcpbus.tasks.record import TaskRecord


class TaskStore(Protocol):
    """Keeps tasks, each with what came of it.

    One bus at a time uses a store: opening one reports every task in it that was still running as failed, since
    what ran it is gone. The bus decides when a task is deleted; a store drops nothing by itself. A call that raises, or is
    cancelled at its deadline (`Limits.store_deadline`), has the store left alone for a while.
    """

    async def put(self, record: TaskRecord, payload: bytes | None) -> None:
        """Keep a task in place of what is kept of it; when this returns, it is durable.

        Args:
            record: The task.
            payload: Its encoded result or error, if it has one.
        """

    async def payload(self, task_id: str) -> bytes | None:
        """Return the encoded result or error of a task; None if there is none."""

    async def delete(self, task_id: str) -> None:
        """Forget a task. Harmless if it is not there."""

    async def load(self) -> Sequence[TaskRecord]:
        """Return all tasks that are kept."""
