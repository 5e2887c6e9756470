"""A small actor library on trio: actors decide, tasks wait."""

from mcpbus_actors._address import Address, Stopped
from mcpbus_actors._ask import Ask
from mcpbus_actors._context import ActorContext
from mcpbus_actors._dead_letters import DeadLetter
from mcpbus_actors._eager import EagerTask
from mcpbus_actors._errors import (
    ActorError,
    AskError,
    AskFailedError,
    AskRefusedError,
    AskTimeoutError,
    LifecycleError,
    NameTakenError,
    split_failure,
)
from mcpbus_actors._lazy import LazyActor
from mcpbus_actors._leader import Leader, WorkQueue
from mcpbus_actors._life import Strategy
from mcpbus_actors._mailbox import Actor
from mcpbus_actors._messages import (
    DeadLetterReason,
    Directive,
    Failed,
    Outcome,
    StopReason,
    Succeeded,
    TaskCancelled,
)
from mcpbus_actors._registry import NameRegistry
from mcpbus_actors._tasks import Task, TaskEnded
from mcpbus_actors._timers import Timer
from mcpbus_actors.system import ActorSystem, SystemStatistics, open_system

__all__ = [
    "Actor",
    "ActorContext",
    "ActorError",
    "ActorSystem",
    "Address",
    "Ask",
    "AskError",
    "AskFailedError",
    "AskRefusedError",
    "AskTimeoutError",
    "DeadLetter",
    "DeadLetterReason",
    "Directive",
    "EagerTask",
    "Failed",
    "LazyActor",
    "Leader",
    "LifecycleError",
    "NameRegistry",
    "NameTakenError",
    "Outcome",
    "StopReason",
    "Stopped",
    "Strategy",
    "Succeeded",
    "SystemStatistics",
    "Task",
    "TaskCancelled",
    "TaskEnded",
    "Timer",
    "WorkQueue",
    "open_system",
    "split_failure",
]
