"""The extension of tasks: its name, who may use it, and what a tool says of it.

Source: SEP-2663, "Capability Negotiation"; rules TX-1, TX-3 and TX-10.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_params, missing_extension
from mcpbus.protocol.extensions import declared_settings
from mcpbus.protocol.keywords import Explained
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.protocol.validators import check_told_seconds

TASKS: Final = "io.modelcontextprotocol/tasks"


class TaskSupport(msgspec.Struct, metaclass=Explained, frozen=True, kw_only=True):
    """How calls of a tool become tasks.

    Attributes:
        required: Whether a client that did not declare the extension is refused. Otherwise, and for every legacy
            client, the tool runs within its request as any other.
        deferred: Whether a call becomes a task only when its handler says so with ``ctx.begin_task()``. What it
            asks before that is asked within the request, and what it returns before is answered at once.
        ttl: Seconds that a task has, and for which its result is kept; the bus's own if None.
        poll_interval: Seconds between two looks at it that clients are advised to wait; the bus's own if None.

    Raises:
        ValueError: A time is not positive, or too long to be told.
    """

    required: bool = False
    deferred: bool = False
    ttl: float | None = None
    poll_interval: float | None = None

    def __post_init__(self) -> None:
        """Refuse what clients cannot be told."""
        times = {"ttl": self.ttl, "poll_interval": self.poll_interval}
        check_told_seconds(
            "TaskSupport", 0.001, **{name: time for name, time in times.items() if time is not None}
        )


TaskOption: TypeAlias = Literal["optional", "required"] | TaskSupport

_WORDS: Final[Mapping[Any, TaskSupport]] = {
    "optional": TaskSupport(),
    "required": TaskSupport(required=True),
}


def read_support(option: object) -> TaskSupport | None:
    """Return what the option ``task=`` of a tool means.

    Raises:
        ValueError: It means nothing.
    """
    if option is None or isinstance(option, TaskSupport):
        return option
    support = _WORDS.get(option) if isinstance(option, str) else None
    if support is None:
        raise ValueError(f"task is 'optional', 'required' or a TaskSupport, not {option!r}")
    return support


def declares(capabilities: Mapping[str, Any], revision: Revision) -> bool:
    """Tell whether a request that declares these client capabilities may be answered with a task."""
    # A legacy client that names the extension declares nothing by it (SEP-2663, "Backward Compatibility").
    return revision.era is Era.MODERN and declared_settings(capabilities, TASKS) is not None


def undeclared() -> ProtocolError:
    """Return -32021, for a request that had to declare the extension and did not."""
    return missing_extension(TASKS)


def unknown_task() -> ProtocolError:
    """Return -32602, for an id that names no task, or somebody else's; which of them is not told (rule TX-9)."""
    return invalid_params("unknown task - at `params.taskId`")
