"""What is known of a task, as a store keeps it and as clients see it (SEP-2663, "Tasks")."""

import enum
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mcpbus.features.schemas import python_types
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.revisions import LATEST


class TaskStatus(enum.StrEnum):
    """Where a task is."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    """Only for JSON-RPC errors: a tool's result that says ``isError`` is a completed task (rule TX-14)."""
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether it stays as it is."""
        return self in _FINAL


_FINAL: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})
_PAYLOADS: Final = {
    TaskStatus.INPUT_REQUIRED: "inputRequests",
    TaskStatus.COMPLETED: "result",
    TaskStatus.FAILED: "error",
}


class TaskRecord(msgspec.Struct, frozen=True):
    """A task, without what came of it.

    Attributes:
        id: Unguessable: where there are no principals, it is all that access needs.
        owner: Tells who began it; see `mcpbus.protocol.principals`.
        status: Where it is.
        message: Says more about the status, for people.
        created: When it began, in seconds since 1970.
        updated: When the status or the message last changed, likewise.
        ttl_ms: For how many milliseconds from `created` clients may rely on it.
        poll_ms: How many milliseconds they should wait between two looks.
        size: Bytes of the result or error that is kept with it.
        bus: Names the bus that has it.
    """

    id: str
    owner: bytes
    status: TaskStatus
    message: str | None
    created: float
    updated: float
    ttl_ms: int
    poll_ms: int
    size: int = 0
    bus: str = ""

    @property
    def expires(self) -> float:
        """When it may be forgotten, in seconds since 1970."""
        return self.created + self.ttl_ms / 1000

    def seconds_left(self, now: float) -> float:
        """Return for how long it may not be forgotten; never more than its time, where the clock was fast when it was created."""
        return min(self.expires - now, self.ttl_ms / 1000)

    def encode(self, payload: bytes | None = None) -> bytes:
        """Return the JSON object of the task, with what belongs to its status.

        Args:
            payload: The encoded questions, result or error; None leaves it out, as the answer to the call that
                became the task has to.
        """
        described: dict[str, Any] = {"taskId": self.id, "status": self.status.value}
        if self.message is not None:
            described["statusMessage"] = self.message
        described["createdAt"] = _iso(self.created)
        described["lastUpdatedAt"] = _iso(self.updated)
        described["ttlMs"] = self.ttl_ms
        described["pollIntervalMs"] = self.poll_ms
        member = _PAYLOADS.get(self.status)
        if payload is not None and member is not None:
            described[member] = msgspec.Raw(payload)
        return python_types.encode(described)


def encode_error(error: ProtocolError) -> bytes:
    """Return the JSON object of an error, as a failed task carries it: under a code that may leave where there are tasks."""
    error = LATEST.admissible(error)
    described: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.encoded_data is not None:
        described["data"] = error.encoded_data
    return python_types.encode(described)


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
