"""The tasks extension of 2026-07-28: calls that are answered with a handle, and go on."""

from typing import TYPE_CHECKING

from mcpbus.core.stores.memory import MemoryTaskStore
from mcpbus.core.stores.protocol import LeasedTaskStore, TaskClaimedError, TaskStore
from mcpbus.core.stores.sqlite import SqliteTaskStore
from mcpbus.core.tasks.record import TaskRecord, TaskStatus
from mcpbus.protocol.lazy_names import lazy_exports
from mcpbus.protocol.task_extension import TASKS, TaskSupport

if TYPE_CHECKING:
    from mcpbus.core.stores.redis_tasks import RedisTaskStore
else:
    # It needs coredis: most do not, and it takes longer than all else.
    __getattr__, __dir__ = lazy_exports(__name__, {"mcpbus.core.stores.redis_tasks": ("RedisTaskStore",)})

__all__ = [
    "TASKS",
    "LeasedTaskStore",
    "MemoryTaskStore",
    "RedisTaskStore",
    "SqliteTaskStore",
    "TaskClaimedError",
    "TaskRecord",
    "TaskStatus",
    "TaskStore",
    "TaskSupport",
]
