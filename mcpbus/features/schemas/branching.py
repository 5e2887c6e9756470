"""Recursive unions, whose validation takes time that grows exponentially with the depth of a value.

pydantic tries each member of a union. If two members are objects that contain the union again, a value at depth n is tried 2ⁿ
times, so a request of some hundred bytes could block the server. The depth of such values is limited. A discriminator lets
pydantic try one member alone.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

_MOST_TRIALS: Final = 1_000
"""About ten milliseconds."""
_WRAPPERS: Final = frozenset(
    {
        "function-after",
        "function-before",
        "function-wrap",
        "nullable",
        "default",
        "definitions",
        "model",
        "dataclass",
    }
)
_OBJECTS: Final = frozenset({"typed-dict", "model-fields", "dataclass-args", "dict", "model", "dataclass"})
_ARRAYS: Final = frozenset({"list", "tuple", "set", "frozenset", "call", "deque"})
_UNREAD: Final = frozenset({"metadata", "serialization", "cls", "config", "function"})


def find_deepest(schema: Mapping[str, Any]) -> int | None:
    """Return how deeply objects and arrays may be nested in a value, or None if validation takes linear time.

    Args:
        schema: The core schema of a type.
    """
    definitions = {
        each["ref"]: each for node in _nodes(schema) for each in node.get("definitions", ()) if "ref" in each
    }
    most = max(
        (
            _ambiguous(node, ref, definitions)
            for ref, definition in definitions.items()
            for node in _nodes(definition)
            if node.get("type") == "union"
        ),
        default=1,
    )
    return None if most < 2 else int(math.log(_MOST_TRIALS, most))


def is_deeper(value: Any, most: int) -> bool:
    """Whether objects and arrays are nested more than `most` times in decoded JSON."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _ambiguous(union: Mapping[str, Any], home: str, definitions: Mapping[str, Any]) -> int:
    """Return how many members of a union of one kind contain the definition of the union."""
    choices = [each[0] if isinstance(each, tuple) else each for each in union["choices"]]
    kinds = [_kind(choice, definitions) for choice in choices if home in _reached(choice, definitions)]
    return max((kinds.count(kind) for kind in kinds), default=0)


def _kind(schema: Any, definitions: Mapping[str, Any]) -> str:
    while True:
        kind = schema["type"]
        if kind == "definition-ref":
            schema = definitions.get(schema["schema_ref"], {"type": "any"})
        elif kind in _OBJECTS:
            return "object"
        elif kind in _ARRAYS:
            return "array"
        elif kind in _WRAPPERS:
            schema = schema["schema"]
        else:
            return "any"


def _reached(schema: Any, definitions: Mapping[str, Any]) -> set[str]:
    reached: set[str] = set()
    pending = [schema]
    while pending:
        for node in _nodes(pending.pop()):
            ref = node.get("schema_ref")
            if ref is not None and ref not in reached and ref in definitions:
                reached.add(ref)
                pending.append(definitions[ref])
    return reached


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            yield node
            pending += [value for key, value in node.items() if key not in _UNREAD]
        elif isinstance(node, list | tuple):
            pending += node
