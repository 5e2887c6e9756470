"""Schemas that admit more than given ones, and are shorter.

A schema that is cut admits anything in the place of the cut. Keywords with which a part that admits more makes the whole admit less are
left out then, and a choice of exactly one becomes a choice of any.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from mcpbus.openapi.document import OpenApiError

_DEPTHS: Final = (12, 8, 6, 5, 4, 3, 2, 1)

ONE: Final = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
NAMED: Final = frozenset({"$defs", "properties", "patternProperties", "dependentSchemas"})

_DROPPED_WHEN_LOOSE: Final = frozenset(
    {"not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties", "maxContains"}
)
"""Keywords with which a part that admits more makes the whole admit less."""


def loosened(schema: Any, kept: frozenset[str], depth: int | None = None) -> Any:
    """Return a schema that admits whatever the given one admits, without references to most definitions.

    Args:
        schema: A schema with references to ``$defs``.
        kept: The definitions to which references may remain.
        depth: The number of levels to keep, if not all.
    """
    if not isinstance(schema, dict):
        return True if schema is False else schema
    if depth == 0:
        return {name: schema[name] for name in ("type", "title") if name in schema}
    less = None if depth is None else depth - 1

    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "$ref" and value.removeprefix("#/$defs/") not in kept:
            continue
        if keyword not in _DROPPED_WHEN_LOOSE:
            made[keyword] = _inner(keyword, value, lambda part: loosened(part, kept, less))
    if "oneOf" in made:
        made["allOf"] = [*made.get("allOf", ()), {"anyOf": made.pop("oneOf")}]
    return made


def _inner(keyword: str, value: Any, loosen: Callable[[Any], Any]) -> Any:
    """Return the value of a keyword with the schemas in it loosened."""
    if keyword in ONE:
        return value if isinstance(value, bool) else loosen(value)  # False closes an object, and stays
    if keyword in MANY:
        return [loosen(each) for each in value]
    if keyword in NAMED:
        return {name: loosen(each) for name, each in value.items()}
    return value


def without_patterns(schema: Any) -> Any:
    """Return a schema without regular expressions for texts: documents have some of other languages, which the validator cannot read."""
    if not isinstance(schema, dict):
        return schema
    return {
        keyword: _inner(keyword, value, without_patterns)
        for keyword, value in schema.items()
        if keyword != "pattern"
    }


def shortened(root: dict[str, Any], longest: int) -> dict[str, Any]:
    """Return a schema that admits whatever `root` admits, has no references, and at most `longest` bytes of JSON if it can."""
    for depth in _DEPTHS:
        made: dict[str, Any] = loosened(root, frozenset(), depth)
        if size_of(made) <= longest:
            return made
    return {name: root[name] for name in ("type", "required") if name in root}


def size_of(value: Any) -> int:
    """Return the bytes of a value as JSON.

    Raises:
        OpenApiError: It has none.
    """
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise OpenApiError(f"a schema holds what JSON cannot: {error}") from None
