"""Which operations of a document become tools, and under which names.

A pattern is a text: an ``operationId`` or the name of a tool, a method and a path such as ``GET /pets/*``, or a tag such as ``tag:store``.
``*`` stands for any letters.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

from mcpbus.openapi.naming import tool_names
from mcpbus.openapi.operations import ApiOperation
from mcpbus.protocol.printable import quoted

_LONGEST: Final = 100


@attrs.frozen
class OperationPattern:
    """A pattern that selects operations.

    Attributes:
        text: The pattern.
    """

    text: str

    def matches(self, operation: ApiOperation, name: str) -> bool:
        """Return whether it selects an operation, whose tool has this name."""
        if self.text.startswith("tag:"):
            return any(self._fits(f"tag:{tag}") for tag in operation.tags)
        return self._fits(name) or self._fits(operation.key) or self._fits(operation.id or name)

    def _fits(self, text: str) -> bool:
        parts = ".*".join(map(re.escape, self.text.split("*")))
        return re.fullmatch(parts, text, re.DOTALL) is not None


def read_operation_patterns(
    owner: str, option: str, given: Iterable[str] | None
) -> list[OperationPattern] | None:
    """Return the patterns of an option; None if it is left out.

    Raises:
        TypeError: It is no list of texts.
    """
    if given is None:
        return None
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{owner}: {option} is a list of patterns: write {option}=['GET /pets/*']")
    patterns = [*given]
    for each in patterns:
        if not isinstance(each, str):
            raise TypeError(f"{owner}: {option} is a list of texts, and {each!r} is none")
    return [OperationPattern(each) for each in patterns]


def choose_operations(
    operations: Sequence[ApiOperation],
    include: Collection[OperationPattern] | None,
    exclude: Collection[OperationPattern],
    rename: Mapping[str, str],
) -> list[tuple[ApiOperation, str]]:
    """Return the operations that are wanted, each with the name of its tool.

    Args:
        operations: All operations.
        include: Selects the only ones that are wanted; None for all.
        exclude: Selects those that are not wanted.
        rename: Names by ``operationId``, by name, or by method and path.

    Raises:
        ValueError: A pattern selects nothing, or two tools would have one name.
    """
    names = tool_names(operations)
    named = [(each, names[each.key]) for each in operations]
    for option, patterns in (("include", include or ()), ("exclude", exclude)):
        for pattern in patterns:
            if not any(pattern.matches(*each) for each in named):
                raise ValueError(
                    f"{option}: no operation matches {pattern.text!r}; there are {_some(names.values())}"
                )
    chosen = [
        (operation, name)
        for operation, name in named
        if (include is None or any(each.matches(operation, name) for each in include))
        and not any(each.matches(operation, name) for each in exclude)
    ]
    renamed = _renamed(chosen, rename)
    used: dict[str, str] = {}
    for operation, name in renamed:
        if name in used:
            raise ValueError(f"rename: both {used[name]} and {operation.key} would be named {name!r}")
        used[name] = operation.key
    return renamed


def _renamed(
    chosen: Sequence[tuple[ApiOperation, str]], rename: Mapping[str, str]
) -> list[tuple[ApiOperation, str]]:
    left = dict(rename)
    renamed = []
    for operation, name in chosen:
        own = next((key for key in (operation.key, operation.id, name) if key in rename), None)
        renamed.append((operation, name if own is None else rename[own]))
        if own is not None:
            left.pop(own, None)
    if left:
        raise ValueError(
            f"rename: no chosen operation is {next(iter(left))!r}; there are {_some(name for _, name in chosen)}"
        )
    return renamed


def _some(names: Iterable[str], most: int = 8) -> str:
    several = [*names]
    shown = ", ".join(quoted(name, _LONGEST) for name in several[:most])
    return f"{shown} and {len(several) - most} others" if len(several) > most else shown or "none"
