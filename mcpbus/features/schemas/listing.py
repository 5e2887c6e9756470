"""JSON Schemas of types, in a form that every client accepts.

pydantic generates a schema, and `normalize` changes what clients reject or misread. Each change is a row of `CHANGES`, with
the client that needs it. Tools, results and forms all use this one step.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from mcpbus.features.docstrings import read_class_docstring
from mcpbus.features.schemas.metadata import json_default
from mcpbus.features.schemas.records import describe_fields

Schema: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["validation", "serialization"]

_REFERENCE: Final = "#/$defs/"
_SUBSCHEMAS: Final = (
    "items",
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
)
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS: Final = ("properties", "patternProperties", "$defs")
_KEYWORDS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_NAMES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def list_schema(adapter: TypeAdapter[Any], mode: Mode) -> Schema:
    """Return the JSON Schema (2020-12) of a type, normalized.

    Args:
        adapter: pydantic's adapter of the type.
        mode: ``"validation"`` for values that are received, ``"serialization"`` for values that are sent.

    Raises:
        TypeError: The type has no JSON form, or a default has none.
    """
    try:
        return normalize(adapter.json_schema(by_alias=True, schema_generator=_Generator, mode=mode))
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise TypeError(str(error).partition("\n")[0]) from error


class _Generator(GenerateJsonSchema):
    """pydantic's generator, with descriptions from docstrings, and without titles that only repeat a name."""

    ignored_warning_kinds = {"skipped-choice"}  # noqa: RUF012 - as the base class has it

    def emit_warning(self, kind: Any, detail: str) -> None:
        if kind not in self.ignored_warning_kinds:
            raise TypeError(detail)

    def sort(self, value: Schema, parent_key: str | None = None) -> Schema:  # noqa: ARG002 - the author's order stays
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        return _described(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        return _described(super().dataclass_schema(schema), schema["cls"])

    def bytes_schema(self, schema: core_schema.BytesSchema) -> Schema:
        found = super().bytes_schema(schema)
        del found["format"]
        if self.mode == "serialization":
            return {**found, "contentEncoding": "base64"}
        return {**found, "format": "binary"}

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> Schema:
        found = super().datetime_schema(schema)
        # RFC 3339 requires an offset. A result may have none.
        if self.mode == "serialization" and schema.get("tz_constraint") != "aware":
            found.pop("format", None)
        return found

    def time_schema(self, schema: core_schema.TimeSchema) -> Schema:
        found = super().time_schema(schema)
        if self.mode == "serialization" and schema.get("tz_constraint") != "aware":
            found.pop("format", None)
        return found

    def float_schema(self, schema: core_schema.FloatSchema) -> Schema:
        # JSON has no infinite bound.
        return {key: value for key, value in super().float_schema(schema).items() if _is_finite(value)}

    def encode_default(self, dft: Any) -> Any:
        return json_default(dft)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        found = super().default_schema(schema)
        if "default" in found and any(not _is_finite(each) for each in _numbers(found["default"])):
            del found["default"]
        return found


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _numbers(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    else:
        yield value


def _described(schema: Schema, kind: type) -> Schema:
    """Add the descriptions of a model's fields that its docstrings, or texts in its annotations, have."""
    described = describe_fields(kind)
    fields = getattr(kind, "model_fields" if issubclass(kind, BaseModel) else "__pydantic_fields__", {})
    for name, field in fields.items():
        text = next((each for each in field.metadata if isinstance(each, str)), described.get(name))
        for key in (name, field.alias, field.validation_alias, field.serialization_alias):
            member = schema.get("properties", {}).get(key) if isinstance(key, str) else None
            if text is not None and member is not None:
                member.setdefault("description", inspect.cleandoc(text))
    if (
        described
        and "description" in schema
        and schema["description"] == inspect.cleandoc(kind.__doc__ or "")
    ):
        if (text := read_class_docstring(kind).description) is None:
            del schema["description"]
        else:
            schema["description"] = text
    return schema


@attrs.frozen
class Change:
    """One change to schemas, for the clients that need it.

    Attributes:
        name: The rule that schemas keep.
        source: The client that rejects or misreads others.
        apply: Returns a changed subschema; its own subschemas are changed already.
    """

    name: str
    source: str
    apply: Callable[[Schema], Schema]


def _typed_const(schema: Schema) -> Schema:
    if "const" in schema and "type" not in schema and (name := _NAMES.get(type(schema["const"]))):
        return {"type": name, **schema}
    return schema


def _typed_enum(schema: Schema) -> Schema:
    if "enum" not in schema or "type" in schema:
        return schema
    groups: dict[str, list[Any]] = {}
    for value in schema["enum"]:
        name = _NAMES.get(type(value))
        if name is None:
            return schema
        groups.setdefault(name, []).append(value)
    if len(groups) == 1:
        return {"type": next(iter(groups)), **schema}
    rest = {key: value for key, value in schema.items() if key != "enum"}
    return {"anyOf": [_choices(name, values) for name, values in groups.items()], **rest}


def _choices(name: str, values: list[Any]) -> Schema:
    return {"type": name} if name == "null" else {"type": name, "enum": values}


def _items(schema: Schema) -> Schema:
    if schema.get("type") != "array" or isinstance(schema.get("items"), Mapping):
        return schema
    members: list[Any] = []
    for each in schema.get("prefixItems", ()):
        if each not in members:
            members.append(each)
    if not members:
        return {**schema, "items": {}}
    return {**schema, "items": members[0] if len(members) == 1 else {"anyOf": members}}


def _bounds(schema: Schema) -> Schema:
    return {_KEYWORDS.get(key, key): value for key, value in schema.items()}


def _ordered(schema: Schema) -> Schema:
    """Put the description of the value first, as authors write it."""
    first = ("type", "title", "description")
    return {key: schema[key] for key in first if key in schema} | schema


CHANGES: Final = (
    Change(
        "a const has a type",
        "Gemini API: a function declaration without a type is INVALID_ARGUMENT, and the whole tool list fails",
        _typed_const,
    ),
    Change(
        "an enum has one type; choices of several types are alternatives",
        "Gemini API: Schema.enum is for one type, and Schema.type is required",
        _typed_enum,
    ),
    Change(
        "an array has items, an object",
        "VS Code: 'tool parameters array type must have items'; OpenAI: 'array schema missing items'",
        _items,
    ),
    Change(
        "a bound is a keyword of JSON Schema",
        "JSON Schema validators: pydantic lists a bound after a validator under its own name, such as ge",
        _bounds,
    ),
    Change("type and description come first", "people who read the list", _ordered),
)
"""Changes to each subschema, in this order. Changes to a whole schema are in `normalize`."""


def normalize(document: Schema) -> Schema:
    """Return a schema that every client accepts.

    The root is never a reference, since clients look for ``type: object`` there, and every definition is used.
    """
    schema: Schema = _normalize(document)
    definitions = schema.pop("$defs", {})
    seen: set[str] = set()
    while (reference := schema.get("$ref")) is not None and reference not in seen:
        seen.add(reference)
        inner = definitions[reference.removeprefix(_REFERENCE)]
        schema = _ordered({**inner, **{key: value for key, value in schema.items() if key != "$ref"}})
    used = _used(schema, definitions)
    if used:
        schema["$defs"] = {name: definition for name, definition in definitions.items() if name in used}
    return schema


def _normalize(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    found = dict(schema)
    for key, value in schema.items():
        if key in _SUBSCHEMAS:
            found[key] = _normalize(value)
        elif key in _LISTS and isinstance(value, list):
            found[key] = [_normalize(each) for each in value]
        elif key in _MAPS and isinstance(value, Mapping):
            found[key] = {name: _normalize(each) for name, each in value.items()}
    for change in CHANGES:
        found = change.apply(found)
    return found


def _used(schema: Schema, definitions: Mapping[str, Schema]) -> set[str]:
    used: set[str] = set()
    pending = list(_references(schema))
    while pending:
        name = pending.pop()
        if name not in used and name in definitions:
            used.add(name)
            pending += _references(definitions[name])
    return used


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(_REFERENCE)
            elif key == "mapping":  # of a discriminator
                yield from (each.removeprefix(_REFERENCE) for each in value.values() if isinstance(each, str))
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)
