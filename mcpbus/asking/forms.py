"""Forms: from a Python type to the flat JSON Schema that a client shows, and from its content back.

A form is an object whose properties are strings, numbers, booleans, or choices (2025-11-25, Elicitation,
"Requested Schema"). A dataclass, attrs class, TypedDict, msgspec Struct or pydantic model of such fields makes
one; a single field's type, such as ``str`` or ``Literal["a", "b"]``, makes a form with one property, ``value``.
"""

import datetime as dt
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import attrs
import msgspec

from mcpbus.schemas import jsontypes
from mcpbus.schemas.errors import RegistrationError
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
    # Two types such as Literal["a", "b"] and Literal["b", "a"] are equal, and different forms.
    return _from_class(kind) if isinstance(kind, type) else _from_type(kind)


@functools.lru_cache(maxsize=256)
def _from_class(kind: type) -> Form:
    return _from_type(kind)


def _from_type(kind: Any) -> Form:
    document = _describe(kind)
    if document.get("type") == "object" and "properties" in document:
        hints = _hints(kind)
        return _flat_form(document, hints, lambda content: jsontypes.convert_strictly(content, kind))
    form = msgspec.defstruct("Form", [(_SINGLE, kind)])

    def read(content: dict[str, Any]) -> Any:
        return getattr(jsontypes.convert_strictly(content, form), _SINGLE)

    return _flat_form(_describe(form), {_SINGLE: kind}, read)


def _describe(kind: Any) -> dict[str, Any]:
    try:
        return jsontypes.schema_of(kind)
    except TypeError as error:
        raise TypeError(
            f"{kind!r} makes no form, which has strings, numbers, booleans and choices"
        ) from error


def _flat_form(
    document: Mapping[str, Any], hints: Mapping[str, Any], convert: Callable[[dict[str, Any]], Any]
) -> Form:
    """Make a form of an object's schema and the types of its properties."""
    definitions = document.get("$defs", {})
    required = list(document.get("required", ()))
    properties: dict[str, Any] = {}
    nulls: dict[str, None] = {}
    for name, described in document["properties"].items():
        schema, nullable = _flatten(described, definitions)
        if nullable and name in required:
            # A form has no null: what may be null may be left out, and is null then.
            required.remove(name)
            nulls[name] = None
        properties[name] = _check(name, _refine(schema, hints.get(name)))
    wire: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        wire["required"] = required
    return Form(wire, lambda content: convert(nulls | content))


def _from_schema(schema: Mapping[str, Any]) -> Form:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise TypeError('a form is {"type": "object", "properties": {...}}')
    for name, described in schema["properties"].items():
        _check(name, described)
    try:
        compiled = compile_schema(dict(schema), "form")
    except RegistrationError as error:
        raise TypeError(str(error)) from error

    def read(content: dict[str, Any]) -> Any:
        fault = compiled.faults(content)
        if fault is not None:
            raise ValueError(fault)
        return content

    return Form(schema, read)


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a class's fields by their names in JSON."""
    hints = get_type_hints(get_origin(kind) or kind, include_extras=True)
    fields = getattr(kind, "__struct_fields__", ())
    renamed = dict(zip(fields, getattr(kind, "__struct_encode_fields__", ()), strict=True))
    return {renamed.get(name, name): hint for name, hint in hints.items()}


def _flatten(schema: Any, definitions: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a property's schema without references, and whether null was one of its types."""
    if "$ref" in schema:
        inner, nullable = _flatten(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        # The name and the docstring of an Enum are its class's, not the property's.
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return {
            key: value for key, value in inner.items() if key not in {"title", "description"}
        } | own, nullable
    if "anyOf" in schema and "type" not in schema:
        members = [member for member in schema["anyOf"] if member.get("type") != "null"]
        if len(members) == 1:
            rest = {key: value for key, value in schema.items() if key != "anyOf" and value is not None}
            return _flatten(members[0], definitions)[0] | rest, True
    if "enum" in schema and "type" not in schema:
        schema = {"type": "string", **schema}
    if isinstance(schema.get("items"), Mapping):
        schema = {**schema, "items": _flatten(schema["items"], definitions)[0]}
    return {key: value for key, value in schema.items() if value is not None}, False


def _refine(schema: dict[str, Any], hint: Any) -> dict[str, Any]:
    """Say what the schema of a type leaves out and people see: the order of choices, and what a time is like."""
    if isinstance(schema.get("items"), Mapping):
        return {**schema, "items": _refine(schema["items"], hint)}
    choices = _choices(hint)
    if choices is not None and "enum" in schema:
        return {**schema, "enum": [choice for choice in choices if choice in schema["enum"]]}
    if schema.get("type") == "string" and _mentions(hint, dt.datetime):
        return {"format": "date-time", **schema}
    return schema


def _choices(hint: Any) -> Sequence[Any] | None:
    """Return the choices that a type leaves, in the order in which they were written."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [member.value for member in hint]
    found = (_choices(inner) for inner in get_args(hint))
    return next((choices for choices in found if choices is not None), None)


def _mentions(hint: Any, kind: type) -> bool:
    return hint is kind or any(_mentions(inner, kind) for inner in get_args(hint))


def _check(name: str, schema: Any) -> dict[str, Any]:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(kind, str) or kind not in _KEYS:
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
