"""A small actor library on trio: actors decide, tasks wait."""

from actors._address import Address, Stopped
from actors._ask import Ask
from actors._cell import Cell
from actors._dead_letters import DeadLetter
from actors._eager import EagerTask
from actors._errors import (
    ActorError,
    AskError,
    AskFailedError,
    AskRefusedError,
    AskTimeoutError,
    LifecycleError,
    NameTakenError,
)
from actors._failures import split_failure
from actors._lazy import LazyActor
from actors._life import Strategy
from actors._mailbox import Actor
from actors._messages import (
    Directive,
    Discard,
    Failed,
    Outcome,
    StopReason,
    Succeeded,
    TaskCancelled,
)
from actors._registry import Registry
from actors._tasks import Task, TaskEnded
from actors._timers import Timer
from actors.system import Statistics, System, open_system

__all__ = [
    "Actor",
    "ActorError",
    "Address",
    "Ask",
    "AskError",
    "AskFailedError",
    "AskRefusedError",
    "AskTimeoutError",
    "Cell",
    "DeadLetter",
    "Directive",
    "Discard",
    "EagerTask",
    "Failed",
    "LazyActor",
    "LifecycleError",
    "NameTakenError",
    "Outcome",
    "Registry",
    "Statistics",
    "StopReason",
    "Stopped",
    "Strategy",
    "Succeeded",
    "System",
    "Task",
    "TaskCancelled",
    "TaskEnded",
    "Timer",
    "open_system",
    "split_failure",
]
