"""The tasks extension of 2026-07-28: calls that are answered with a handle, and go on."""

from typing import TYPE_CHECKING

from mcpbus.core.stores.memory import MemoryTaskStore
from mcpbus.core.stores.protocol import LeasedTaskStore, TaskClaimedError, TaskStore
from mcpbus.core.stores.sqlite.stores import SqliteTaskStore
from mcpbus.core.tasks.record import TaskRecord, TaskStatus
from mcpbus.protocol.extensions import TASKS, TaskSupport
from mcpbus.protocol.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from mcpbus.core.stores.redis.tasks import RedisTaskStore
else:
    # It needs coredis: most do not, and it takes longer than all else.
    __getattr__, __dir__ = lazy_exports(__name__, {"mcpbus.core.stores.redis.tasks": ("RedisTaskStore",)})

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
