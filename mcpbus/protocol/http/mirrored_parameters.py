"""Tool parameters that HTTP clients mirror into ``Mcp-Param-*`` headers: those whose schema has ``x-mcp-header``.

What is read here is what a client sends and a server compares; a tool with an annotation that clients would drop it for cannot
be registered. Source: requirements X-40 to X-46 (SEP-2243).
"""

import re
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

KEY: Final = "x-mcp-header"
"""The member of a schema that asks for a header."""
_KINDS = ("string", "integer", "boolean")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class MirroredParameter(msgspec.Struct, frozen=True):
    """One parameter and its header."""

    path: tuple[str, ...]
    """The members that lead to it from the arguments object."""
    header: str
    """The whole name, as written; header names compare without regard to case."""
    kind: Literal["string", "integer", "boolean"]


def mirrored_parameters(schema: dict[str, Any]) -> tuple[MirroredParameter, ...]:
    """The mirrored parameters of an input schema, in its order.

    Raises:
        ValueError: an annotation is not a header token, not unique, not on a string, integer or boolean, or
            somewhere that ``properties`` alone do not lead to.
    """
    found = []
    seen: set[str] = set()
    for path, part in _reachable(schema, ()):
        token, kind = part[KEY], part.get("type")
        name = ".".join(path)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError(f"{KEY} of {name!r} is not a header token: {token!r}")
        if token.lower() in seen:
            raise ValueError(f"{KEY} {token!r} is used twice; header names ignore case")
        if kind not in _KINDS:
            raise ValueError(f"{KEY} on {name!r}, which is not a string, integer or boolean: {kind!r}")
        seen.add(token.lower())
        found.append(MirroredParameter(path, f"Mcp-Param-{token}", kind))
    if _count(schema) != len(found):
        raise ValueError(
            f"{KEY} is only valid on properties reached by 'properties' from the root; for a parameter that may be None "
            "and for a class 'anyOf' and '$ref' lie between: give it a default of its own type, and describe a class by hand"
        )
    return tuple(found)


def _reachable(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, part in properties.items():
            if isinstance(part, dict):
                if KEY in part:
                    yield (*path, name), part
                yield from _reachable(part, (*path, name))


# Keywords whose value is data, in which the annotation's name would mean nothing.
_DATA = frozenset({"const", "default", "enum", "examples"})


def _count(schema: Any) -> int:
    """How often the annotation occurs as a keyword, anywhere."""
    if isinstance(schema, list):
        return sum(map(_count, schema))
    if not isinstance(schema, dict):
        return 0
    count = 1 if KEY in schema else 0
    for keyword, part in schema.items():
        if keyword in {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}:
            # Here the members are names of the author's and not keywords.
            count += sum(map(_count, part.values())) if isinstance(part, dict) else 0
        elif keyword not in _DATA:
            count += _count(part)
    return count
