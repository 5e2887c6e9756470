"""The tasks extension of 2026-07-28: calls that are answered with a handle, and go on."""

from typing import TYPE_CHECKING, Any

from mcpbus.core.stores.memory import MemoryTaskStore
from mcpbus.core.stores.protocol import TaskStore, TaskTakenError
from mcpbus.core.stores.sqlite import SqliteTaskStore
from mcpbus.core.tasks.record import TaskRecord, TaskStatus
from mcpbus.protocol.task_extension import TASKS, TaskSupport

if TYPE_CHECKING:
    from mcpbus.core.stores.redis_tasks import RedisTaskStore

__all__ = [
    "TASKS",
    "MemoryTaskStore",
    "RedisTaskStore",
    "SqliteTaskStore",
    "TaskRecord",
    "TaskStatus",
    "TaskStore",
    "TaskSupport",
    "TaskTakenError",
]


def __getattr__(name: str) -> Any:
    """Import what needs coredis when somebody asks for it: most do not, and it takes longer than all else."""
    if name == "RedisTaskStore":
        from mcpbus.core.stores.redis_tasks import RedisTaskStore  # noqa: PLC0415

        return RedisTaskStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
