"""What task actors are told."""

from collections.abc import Mapping
from typing import Any

import msgspec
from mcpbus_actors import Address

from mcpbus.core.tasks.record import TaskRecord


class Update(msgspec.Struct, frozen=True):
    """Asked of the actor: take a client's answers. The reply is None, or the error to answer with."""

    answers: Mapping[str, Any]


class CancelTask(msgspec.Struct, frozen=True):
    """The client wants the task to end."""


class SetTaskMessage(msgspec.Struct, frozen=True):
    """The handler says what it is doing."""

    message: str | None


class Follow(msgspec.Struct, frozen=True):
    """Tell a new listen how the task is: what happened before it was there is in that."""

    listener: Address[object]


class CloseTask(msgspec.Struct, frozen=True):
    """The bus shuts down: fail what still runs, and stop.

    Attributes:
        why: For the client, in the error's message.
        waiting: Whether only tasks that wait for their client are meant.
    """

    why: str
    waiting: bool = False


class TaskTakenOver(msgspec.Struct, frozen=True):
    """Another process has a task, which took this one for ended.

    Attributes:
        record: What is known of the task there.
        payload: What came of it there.
    """

    record: TaskRecord
    payload: bytes | None


class Expire(msgspec.Struct, frozen=True):
    """The time to live is over, or others need the room of a result."""
