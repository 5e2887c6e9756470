"""JSON Schema as people read it, and values as they type them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from mcpbus.features.schemas.errors import RegistrationError
from mcpbus.features.schemas.handwritten import compile_schema

_DEEPEST: Final = 16
_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
_LONGEST_CHOICES: Final = 60


def types_of(schema: Any, root: Any, depth: int = 0) -> list[str]:
    """Return which types of JSON a schema allows, as far as it says so; none if it does not."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return []
    if "$ref" in schema:
        return types_of(_resolve(schema["$ref"], root), root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [str(one) for one in kind]
    values = (
        schema["enum"]
        if isinstance(schema.get("enum"), list)
        else [schema["const"]]
        if "const" in schema
        else []
    )
    found = [_NAMES[type(value)] for value in values]
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(keyword)
        for part in parts if isinstance(parts, list) else []:
            found += types_of(part, root, depth + 1)
    return list(dict.fromkeys(found))


def label(schema: Any, root: Any) -> str:
    """Say in a few words what a schema allows: `string`, `integer or null`, `"red" | "green"`."""
    if isinstance(schema, dict) and "$ref" in schema:
        schema = {**_resolve(schema["$ref"], root), **{key: schema[key] for key in schema if key != "$ref"}}
    if isinstance(schema, dict) and isinstance(schema.get("enum"), list):
        choices = " | ".join(_json(value) for value in schema["enum"])
        if len(choices) <= _LONGEST_CHOICES:
            return choices
    kinds = types_of(schema, root)
    if kinds == ["array"] and isinstance(schema.get("items"), dict):
        return f"array of {label(schema['items'], root)}"
    return " or ".join(kinds) or "any"


def parse_typed(text: str, schema: Any, root: Any) -> Any:
    """Read what somebody typed as the first type that a schema allows and that it can be; text otherwise."""
    kinds = types_of(schema, root)
    for kind in _READERS:
        if kind in kinds:
            try:
                return _READERS[kind](text)
            except ValueError:
                continue
    return text


def faults(value: Any, schema: Any, *, formats: bool = False) -> str | None:
    """Say what keeps a value from conforming to a schema; None where it does, or the schema cannot be used."""
    try:
        return compile_schema(schema, "a schema of the server's", formats=formats).faults(value)
    except RegistrationError:
        return None


def _resolve(reference: Any, root: Any) -> dict[str, Any]:
    """What a reference within the schema itself leads to."""
    found = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _read_json(text: str, *kinds: type) -> Any:
    value = msgspec.json.decode(text)
    if type(value) not in kinds:
        raise ValueError("it is of another type")
    return value


def _read_integer(text: str) -> int:
    value = _read_json(text, int, float)
    if value != int(value):
        raise ValueError("it is no integer")
    return int(value)


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "null": lambda text: _read_json(text, type(None)),
    "boolean": lambda text: _read_json(text.lower(), bool),
    "integer": _read_integer,
    "number": lambda text: _read_json(text, int, float),
    "array": lambda text: _read_json(text, list),
    "object": lambda text: _read_json(text, dict),
    "string": lambda text: text,
}
