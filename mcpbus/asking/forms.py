"""Forms: from a Python type to the flat JSON Schema that a client shows, and from its content back.

A form is an object whose properties are strings, numbers, booleans, or choices (2025-11-25, Elicitation,
"Requested Schema"). A dataclass, attrs class, TypedDict, msgspec Struct or pydantic model of such fields makes
one; a single field's type, such as ``str`` or ``Literal["a", "b"]``, makes a form with one property, ``value``.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import msgspec

from mcpbus.schemas import jsontypes
from mcpbus.schemas.handwritten import compile_schema

_COMMON = {"type", "title", "description", "default"}
_STRING = _COMMON | {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"}
_NUMBER = _COMMON | {"minimum", "maximum"}
_ARRAY = _COMMON | {"minItems", "maxItems", "items"}
_KEYS = {"string": _STRING, "number": _NUMBER, "integer": _NUMBER, "boolean": _COMMON, "array": _ARRAY}
_FORMATS = {"email", "uri", "date", "date-time"}
_SINGLE = "value"


@attrs.frozen
class Form:
    """A form that can be shown, and read.

    Attributes:
        schema: What the client is sent as ``requestedSchema``.
        read: Turns the content of an accepted form into what was asked for.

    Raises:
        ValueError: From `read`: the content is not what the form asks for; the text says what is wrong.
    """

    schema: Mapping[str, Any]
    read: Callable[[dict[str, Any]], Any]


def make_form(kind: Any) -> Form:
    """Make a form of a type, or of a hand-written schema.

    Raises:
        TypeError: It is not flat, or has what a form cannot have; the text names the property and the rule.
    """
    if isinstance(kind, Mapping):
        return _from_schema(kind)
    return _from_type(kind)


@functools.lru_cache(maxsize=256)
def _from_type(kind: Any) -> Form:
    document = jsontypes.schema_of(kind)
    if document.get("type") == "object" and "properties" in document:

        def read(content: dict[str, Any]) -> Any:
            return _convert(content, kind)

    else:
        form = msgspec.defstruct("Form", [(_SINGLE, kind)], forbid_unknown_fields=True)
        document = jsontypes.schema_of(form)

        def read(content: dict[str, Any]) -> Any:
            return getattr(_convert(content, form), _SINGLE)

    definitions = document.get("$defs", {})
    required = set(document.get("required", ()))
    properties = {}
    for name, described in document["properties"].items():
        schema, optional = _flatten(described, definitions)
        if optional:
            required.discard(name)
        properties[name] = _check(name, schema)
    wire: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        wire["required"] = [name for name in properties if name in required]
    return Form(wire, read)


def _from_schema(schema: Mapping[str, Any]) -> Form:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise TypeError('a form is {"type": "object", "properties": {...}}')
    for name, described in schema["properties"].items():
        _check(name, described)
    compiled = compile_schema(dict(schema), "form")

    def read(content: dict[str, Any]) -> Any:
        fault = compiled.faults(content)
        if fault is not None:
            raise ValueError(fault)
        return content

    return Form(schema, read)


def _convert(content: dict[str, Any], kind: Any) -> Any:
    return jsontypes.convert_strictly(content, kind)


def _flatten(schema: Any, definitions: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a property's schema without references, and whether null was one of its types."""
    if "$ref" in schema:
        inner, optional = _flatten(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return inner | {key: value for key, value in schema.items() if key != "$ref"}, optional
    if "anyOf" in schema and "type" not in schema:
        members = [member for member in schema["anyOf"] if member.get("type") != "null"]
        if len(members) == 1:
            rest = {key: value for key, value in schema.items() if key != "anyOf" and value is not None}
            return _flatten(members[0], definitions)[0] | rest, True
    if "enum" in schema and "type" not in schema:
        schema = {"type": "string", **schema}
    if isinstance(schema.get("items"), Mapping):
        schema = {**schema, "items": _flatten(schema["items"], definitions)[0]}
    # A class's docstring and name are of no use beside a property.
    return {key: value for key, value in schema.items() if value is not None}, False


def _check(name: str, schema: Any) -> dict[str, Any]:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind not in _KEYS:
        raise TypeError(
            f"property {name!r} of a form must be a string, number, boolean or choice, not {schema!r}"
        )
    unknown = set(schema) - _KEYS[kind]
    if unknown:
        raise TypeError(f"property {name!r} of a form cannot have {', '.join(sorted(unknown))}")
    if kind == "string":
        if schema.get("format", "date") not in _FORMATS:
            raise TypeError(f"property {name!r} of a form: format is one of {', '.join(sorted(_FORMATS))}")
        _check_choices(name, schema.get("enum", ()))
    if kind == "array":
        items = schema.get("items", {})
        if "enum" not in items and "anyOf" not in items:
            raise TypeError(f"property {name!r} of a form: a list must be one of choices")
        _check_choices(name, items.get("enum", ()))
    return dict(schema)


def _check_choices(name: str, choices: Any) -> None:
    if not all(isinstance(choice, str) for choice in choices):
        raise TypeError(f"property {name!r} of a form: choices are strings, not {choices!r}")
