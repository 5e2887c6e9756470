"""The tasks extension of 2026-07-28: calls that are answered with a handle, and go on."""

from mcpbus.protocol.task_extension import TASKS, TaskSupport
from mcpbus.tasks.record import TaskRecord, TaskStatus
from mcpbus.tasks.stores.memory import MemoryTaskStore
from mcpbus.tasks.stores.protocol import TaskStore
from mcpbus.tasks.stores.sqlite import SqliteTaskStore

__all__ = [
    "TASKS",
    "MemoryTaskStore",
    "SqliteTaskStore",
    "TaskRecord",
    "TaskStatus",
    "TaskStore",
    "TaskSupport",
]
