"""Extensions of the protocol: how they are named, which methods are left to them, and what a client declared of one.

Source: SEP-2133; rule B-6.

The extension of tasks: its name, who may use it, and what a tool says of it.

Source: SEP-2663, "Capability Negotiation"; rules TX-1, TX-3 and TX-10.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_params, missing_extension
from mcpbus.protocol.keywords import Explained
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.protocol.validators import check_told_seconds

_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_IDENTIFIER: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_OF_THE_PROTOCOL: Final = frozenset(
    {
        "completion",
        "elicitation",
        "initialize",
        "logging",
        "notifications",
        "ping",
        "prompts",
        "resources",
        "roots",
        "sampling",
        "server",
        "subscriptions",
        "tasks",
        "tools",
    }
)
"""What its own methods begin with, in whatever revision, up to a slash."""
_SHARED: Final = _OF_THE_PROTOCOL - {"notifications"}
_PARTS: Final = frozenset({"templates"})
"""Parts of a family that have methods of the protocol: ``resources/templates/list``. Extensions have others."""


def is_identifier(text: object) -> bool:
    """Tell whether this may name an extension: a prefix, which is a domain turned round, a slash, and a name."""
    return isinstance(text, str) and _IDENTIFIER.fullmatch(text) is not None


def is_left_to_extensions(method: str) -> bool:
    """Return whether a method may be an extension's: neither one of the protocol, nor what one of those would look like.

    A standard extension may have a part of its own in a family of the protocol, such as ``resources/directory/read`` (SEP-2640, skills).
    What begins with ``rpc.`` is JSON-RPC's own (section 4.3). Over HTTP each is said in a header besides, which has visible ASCII only.
    """
    return (
        bool(method)
        and not method.startswith("rpc.")
        and _is_outside(method)
        and method.isascii()
        and method.isprintable()
        and " " not in method
    )


def _is_outside(method: str) -> bool:
    """Return whether a method is outside of what the protocol may ever define."""
    family, _, rest = method.partition("/")
    part, slash, name = rest.partition("/")
    own_part = family in _SHARED and bool(part and slash and name) and part not in _PARTS
    return own_part or family not in _OF_THE_PROTOCOL


def declared_settings(capabilities: Mapping[str, Any], identifier: str) -> Mapping[str, Any] | None:
    """Return what capabilities say of an extension; None if they do not declare it."""
    extensions = capabilities.get("extensions")
    settings = extensions.get(identifier) if isinstance(extensions, Mapping) else None
    return settings if isinstance(settings, Mapping) else None


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
