"""The tasks extension of 2026-07-28: calls that are answered with a handle, and go on."""

from mcpbus.core.stores.memory import MemoryTaskStore
from mcpbus.core.stores.protocol import TaskStore, TaskTakenError
from mcpbus.core.stores.sqlite import SqliteTaskStore
from mcpbus.core.tasks.record import TaskRecord, TaskStatus
from mcpbus.protocol.task_extension import TASKS, TaskSupport

__all__ = [
    "TASKS",
    "MemoryTaskStore",
    "SqliteTaskStore",
    "TaskRecord",
    "TaskStatus",
    "TaskStore",
    "TaskSupport",
    "TaskTakenError",
]
