"""Forms: from a Python type to the flat JSON Schema that a client shows, and from its content back.

A form is an object whose properties are strings, numbers, booleans, or choices (2025-11-25, Elicitation,
"Requested Schema"). A dataclass, attrs class, TypedDict, msgspec Struct or pydantic model of such fields makes
one; a single field's type, such as ``str`` or ``Literal["a", "b"]``, makes a form with one property, ``value``.
"""

import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mcpbus.features.schemas.json_schema import JsonSchema, RegistrationError, compile_schema
from mcpbus.features.schemas.parameter import Parameter
from mcpbus.protocol.keywords import Explained

if TYPE_CHECKING:
    from mcpbus.features.schemas.validation import Validator

_COMMON = {"type", "title", "description", "default"}
_STRING = _COMMON | {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"}
_NUMBER = _COMMON | {"minimum", "maximum"}
_ARRAY = _COMMON | {"minItems", "maxItems", "items"}
_KEYS = {"string": _STRING, "number": _NUMBER, "integer": _NUMBER, "boolean": _COMMON, "array": _ARRAY}
_FORMATS = {"email", "uri", "date", "date-time"}
_SINGLE = "value"


class ChoiceTitles(msgspec.Struct, metaclass=Explained, frozen=True, eq=False):
    """Titles that people see instead of choices, as in ``Annotated[Literal["s"], ChoiceTitles({"s": "Small"})]``.

    It may stand on a `Literal`, an `Enum`, or a list of these.

    Attributes:
        titles: The title of each choice.
    """

    titles: Mapping[str, str]

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return self._titled(handler(schema), handler)

    def _titled(self, found: dict[str, Any], handler: Any) -> dict[str, Any]:
        """Return the schema of choices with their titles, and with the choices themselves for clients without titles."""
        schema = handler.resolve_ref_schema(found)
        if "items" in schema:
            return {**schema, "items": self._titled(schema["items"], handler)}
        if "anyOf" in schema:
            members = [
                each if each.get("type") == "null" else self._titled(each, handler)
                for each in schema["anyOf"]
            ]
            return {**schema, "anyOf": members}
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is None:
            raise TypeError("ChoiceTitles are for a Literal, an Enum, or a list of these")
        for value in values:
            if value not in self.titles:
                raise TypeError(f"choice {value!r} has no title among {', '.join(map(repr, self.titles))}")
        rest = {key: value for key, value in schema.items() if key not in {"const", "title", "description"}}
        titled = [{"const": value, "title": self.titles[value]} for value in values]
        return {**rest, "enum": values, "oneOf": titled}


class Form(msgspec.Struct, frozen=True):
    """A form that can be shown, and read.

    Attributes:
        schema: What the client is sent as ``requestedSchema``.
        read: Turns the content of an accepted form into what was asked for.

    Raises:
        ValueError: From `read`: the content is not what the form asks for; the text says what is wrong.
    """

    schema: Mapping[str, Any]
    read: Callable[[dict[str, Any]], Any]

    @property
    def has_lists(self) -> bool:
        """Whether people may choose several things in it."""
        return any(described["type"] == "array" for described in self.schema["properties"].values())


def make_form(kind: Any) -> Form:
    """Make a form of a type, or of a hand-written schema.

    Raises:
        TypeError: It is not flat, has what a form cannot have, or a default that is no answer; the text names the
            property and the rule.
    """
    if isinstance(kind, Mapping):
        return _from_schema(kind)
    # Two types such as Literal["a", "b"] and Literal["b", "a"] are equal, and different forms.
    return _from_class(kind) if isinstance(kind, type) else _from_type(kind)


@functools.lru_cache(maxsize=256)
def _from_class(kind: type) -> Form:
    return _from_type(kind)


def _from_type(kind: Any) -> Form:
    validator, document = _describe(kind)
    if document.get("type") == "object" and "properties" in document:
        return _flat_form(document, partial(validator.read, texts=False))
    from mcpbus.features.schemas.validation import object_validator  # noqa: PLC0415 - pydantic comes with the first form

    single = object_validator([Parameter(_SINGLE, kind)], "form")
    return _flat_form(single.schema(), lambda content: single.read(content, texts=False)[_SINGLE])


def _describe(kind: Any) -> tuple["Validator", dict[str, Any]]:
    from mcpbus.features.schemas.validation import value_validator  # noqa: PLC0415 - pydantic comes with the first form

    try:
        validator = value_validator(kind, "form")
        return validator, validator.schema()
    except RegistrationError as error:
        raise TypeError(str(error)) from error
    except TypeError as error:
        raise TypeError(
            f"{kind!r} makes no form, which has strings, numbers, booleans and choices: {error}"
        ) from error


def _flat_form(document: Mapping[str, Any], convert: Callable[[dict[str, Any]], Any]) -> Form:
    """Make a form of an object's schema.

    Args:
        document: The schema.
        convert: Returns the value of a content.
    """
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
        properties[name] = _check(name, schema)
    wire: dict[str, Any] = {"type": "object", "properties": properties}
    _check_defaults(wire)
    if required:
        wire["required"] = required
    # pydantic enforces the types. A format of a plain text is enforced here.
    formats = _compile(wire) if any("format" in described for described in properties.values()) else None

    def read(content: dict[str, Any]) -> Any:
        if formats is not None:
            _enforce(formats, {name: value for name, value in content.items() if value is not None})
        return convert(nulls | content)

    return Form(wire, read)


def _from_schema(schema: Mapping[str, Any]) -> Form:
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise TypeError('a form is {"type": "object", "properties": {...}}')
    for name, described in schema["properties"].items():
        _check(name, described)
    compiled = _compile(schema)
    _check_defaults(schema)

    def read(content: dict[str, Any]) -> Any:
        _enforce(compiled, content)
        return content

    return Form(schema, read)


def _compile(schema: Mapping[str, Any]) -> JsonSchema:
    try:
        return compile_schema(dict(schema), "form", formats=True)
    except RegistrationError as error:
        raise TypeError(str(error)) from error


def _enforce(schema: JsonSchema, content: dict[str, Any]) -> None:
    fault = schema.faults(content)
    if fault is not None:
        raise ValueError(fault)


def _check_defaults(schema: Mapping[str, Any]) -> None:
    """Refuse a default that would not be taken as an answer: people would send it back as they were shown it."""
    defaults = {
        name: described["default"]
        for name, described in schema["properties"].items()
        if "default" in described
    }
    if defaults:
        fault = _compile({**schema, "required": []}).faults(defaults)
        if fault is not None:
            raise TypeError(f"a default of a form is not one of its answers: {fault}")


def without_defaults(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a form's schema as clients read it that know defaults of booleans alone."""
    properties = {
        name: {key: value for key, value in described.items() if key != "default"}
        if "default" in described and described["type"] != "boolean"
        else described
        for name, described in schema["properties"].items()
    }
    return {**schema, "properties": properties}


def with_enum_names(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a form's schema as clients read it that know titled choices as `enum` with `enumNames` alone."""
    properties = {
        name: _with_enum_names(described) if "oneOf" in described else described
        for name, described in schema["properties"].items()
    }
    return {**schema, "properties": properties}


def _with_enum_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in schema.items() if key != "oneOf"}
    choices = schema["oneOf"]
    return {**rest, "enum": [c["const"] for c in choices], "enumNames": [c["title"] for c in choices]}


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
    if "const" in schema:  # a single choice
        schema = {"enum": [schema["const"]]} | {key: value for key, value in schema.items() if key != "const"}
    if isinstance(schema.get("items"), Mapping):
        items = _flatten(schema["items"], definitions)[0]
        schema = {**schema, "items": {"anyOf": items["oneOf"]} if "oneOf" in items else items}
    if "oneOf" in schema:
        if "enum" not in schema:
            raise TypeError(
                "use mcpbus.ChoiceTitles for the titles of choices: answers are validated against these"
            )
        titled = [{"const": each["const"], "title": each["title"]} for each in schema["oneOf"]]
        schema = {key: value for key, value in schema.items() if key != "enum"} | {"oneOf": titled}
    return {key: value for key, value in schema.items() if value is not None}, False


def _check(name: str, schema: Any) -> dict[str, Any]:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(kind, str) or kind not in _KEYS:
        raise TypeError(
            f"property {name!r} of a form must be a string, number, boolean or choice, not {schema!r}"
        )
    if kind != "boolean":
        _check_choices(name, schema.get("enum", ()))
    unknown = set(schema) - _KEYS[kind]
    if unknown:
        raise TypeError(f"property {name!r} of a form cannot have {', '.join(sorted(unknown))}")
    if kind == "string":
        if schema.get("format", "date") not in _FORMATS:
            raise TypeError(f"property {name!r} of a form: format is one of {', '.join(sorted(_FORMATS))}")
        _check_titled(name, schema.get("oneOf", ()))
    if kind == "array":
        items = schema.get("items", {})
        if "enum" not in items and "anyOf" not in items:
            raise TypeError(f"property {name!r} of a form: a list must be one of choices")
        _check_choices(name, items.get("enum", ()))
        _check_titled(name, items.get("anyOf", ()))
    return dict(schema)


def _check_choices(name: str, choices: Any) -> None:
    if not all(isinstance(choice, str) for choice in choices):
        raise TypeError(f"property {name!r} of a form: choices are strings, not {choices!r}")


def _check_titled(name: str, choices: Any) -> None:
    for choice in choices:
        if not isinstance(choice, Mapping) or not {"const", "title"} <= set(choice):
            raise TypeError(
                f"property {name!r} of a form: a choice has a const and a title, unlike {choice!r}"
            )
        _check_choices(name, [choice["const"]])
