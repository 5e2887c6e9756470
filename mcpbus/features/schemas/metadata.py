"""The metadata of annotations, in terms that pydantic understands.

pydantic ignores metadata that it does not know. Here each piece of metadata is translated, passed on, or refused:

- a text, a ``Doc``, and the description of a `msgspec.Meta` describe a field;
- the constraints of a `msgspec.Meta` become those of annotated-types;
- all that pydantic would ignore, such as a bare function, is refused with the form that works.
"""

import functools
import inspect
import re
from collections.abc import Iterable
from typing import Any, Final

import annotated_types as at
import attrs
import msgspec
from pydantic import (
    AliasChoices,
    AliasPath,
    AwareDatetime,
    Field,
    GetCoreSchemaHandler,
    NaiveDatetime,
    PydanticUserError,
    TypeAdapter,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, SchemaError, SchemaValidator, core_schema, to_jsonable_python

from mcpbus.features.schemas.json_schema import RegistrationError
from mcpbus.features.schemas.python_types import to_builtins

# pydantic's `conint` and the like leave None in the place of a constraint.
_KNOWN: Final = (
    at.Gt,
    at.Ge,
    at.Lt,
    at.Le,
    at.MultipleOf,
    at.MinLen,
    at.MaxLen,
    at.Predicate,
    at.Not,
    type(None),
)
_OF_META: Final = {
    "gt": at.Gt,
    "ge": at.Ge,
    "lt": at.Lt,
    "le": at.Le,
    "multiple_of": at.MultipleOf,
    "min_length": at.MinLen,
    "max_length": at.MaxLen,
}
_DESCRIPTIVE: Final = ("title", "description", "examples", "deprecated", "json_schema_extra", "discriminator")
_INEFFECTIVE: Final = ("alias", "validation_alias", "serialization_alias")


@attrs.frozen(eq=False)
class _PythonPattern:
    """A pattern for Python's engine."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if schema["type"] == "str":
            return {**schema, "pattern": self.pattern, "regex_engine": "python-re"}  # type: ignore[typeddict-unknown-key, unused-ignore]
        text = core_schema.str_schema(pattern=self.pattern, regex_engine="python-re")
        return core_schema.chain_schema([schema, text])


def read_metadata(extras: Iterable[Any], place: str) -> list[Any]:
    """Return the metadata of an annotation as pydantic takes it.

    Args:
        extras: The metadata as the author wrote it.
        place: The parameter or field that messages name.

    Raises:
        RegistrationError: A piece of it would have no effect.
    """
    return [found for extra in extras for found in _read(extra, place)]


def _read(extra: Any, place: str) -> list[Any]:
    described = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
    if isinstance(described, str):
        return [Field(description=inspect.cleandoc(described))]
    if isinstance(extra, FieldInfo):
        return _read_field(extra, place)
    if isinstance(extra, msgspec.Meta):
        return _read_meta(extra)
    if isinstance(extra, at.Timezone):
        return [_timezone(extra, place)]
    return _read_constraint(extra, place)


def _read_constraint(extra: Any, place: str) -> list[Any]:
    pattern = getattr(extra, "pattern", None)
    for_python = isinstance(pattern, str) and not _is_rust(pattern, place)
    if isinstance(extra, at.GroupedMetadata) and (for_python or not _is_pydantic(extra)):
        return read_metadata(extra, place)
    if for_python:
        others = {name: value for name, value in vars(extra).items() if name != "pattern"}
        return [_PythonPattern(str(pattern)), *Field(**others).metadata]
    _check_known(extra, place)
    return [extra]


def _read_field(field: FieldInfo, place: str) -> list[Any]:
    for name in _INEFFECTIVE:
        if getattr(field, name) is not None:
            raise RegistrationError(
                f"{place}: {name} has an effect only on a parameter or field itself, not inside its type"
            )
    if not field.is_required():
        raise RegistrationError(
            f"{place}: a default has an effect only on a parameter or field itself, not inside its type"
        )
    return [*read_metadata(field.metadata, place), *descriptive(field)]


def descriptive(field: FieldInfo, default: Any = inspect.Parameter.empty) -> list[Any]:
    """Return the part of a ``Field`` that only describes, as a list of one ``Field`` or none.

    Args:
        field: The ``Field``.
        default: A default to list, of any type that has a JSON form.

    Raises:
        TypeError: The default has no JSON form.
    """
    found = {name: getattr(field, name) for name in _DESCRIPTIVE if getattr(field, name) is not None}
    if "description" in found:
        found["description"] = inspect.cleandoc(found["description"])
    listed: dict[str, Any] = {}
    if found.pop("deprecated", None):
        listed["deprecated"] = True  # pydantic takes it only from the fields of models
    if default is not inspect.Parameter.empty:
        listed["default"] = json_default(default)
    if listed:
        found["json_schema_extra"] = _extended(found.get("json_schema_extra"), listed)
    return [Field(**found)] if found else []


def _extended(extra: Any, listed: dict[str, Any]) -> Any:
    if not callable(extra):
        return {**listed, **(extra or {})}

    def change(schema: dict[str, Any]) -> None:
        schema |= listed
        extra(schema)

    return change


def json_default(default: Any) -> Any:
    """Return a default as a client would send it.

    Raises:
        TypeError: It has no JSON form.
    """
    if isinstance(default, set | frozenset):
        # The order of a set differs from process to process, and tool lists are the same in all.
        return sorted(map(json_default, default), key=repr)
    try:
        return to_jsonable_python(default, by_alias=True, inf_nan_mode="constants", fallback=_write_other)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"clients are shown the default {default!r}, which has no JSON form: {error}"
        ) from error


def _write_other(value: Any) -> Any:
    try:
        return TypeAdapter(type(value)).dump_python(value, mode="json")
    except PydanticUserError:  # such as of an attrs class or a Struct
        return to_builtins(value)


def _read_meta(meta: msgspec.Meta) -> list[Any]:
    found: list[Any] = [
        bound(getattr(meta, name)) for name, bound in _OF_META.items() if getattr(meta, name) is not None
    ]
    if meta.pattern is not None:
        found += Field(pattern=meta.pattern).metadata
    if meta.tz is not None:
        found.append(AwareDatetime if meta.tz else NaiveDatetime)
    told = {name: getattr(meta, name) for name in ("title", "description", "examples")}
    told["json_schema_extra"] = meta.extra_json_schema
    given = {name: value for name, value in told.items() if value is not None}
    return [*found, Field(**given)] if given else found


def _is_rust(pattern: str, place: str) -> bool:
    """Whether pydantic's engine for regular expressions takes a pattern; it has no look-around, and needs linear time.

    Raises:
        RegistrationError: Python's engine does not take it either.
    """
    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        try:
            re.compile(pattern)
        except re.error as error:
            raise RegistrationError(
                f"{place}: the pattern {pattern!r} is no regular expression: {error}"
            ) from error
        return False
    return True


def _timezone(timezone: at.Timezone, place: str) -> Any:
    if timezone.tz is None:
        return NaiveDatetime
    if timezone.tz is ...:
        return AwareDatetime
    raise RegistrationError(
        f"{place}: no validator enforces {timezone!r}; write Timezone(...) for any offset, and check the zone in "
        f"an AfterValidator"
    )


def _is_pydantic(extra: Any) -> bool:
    return type(extra).__module__.partition(".")[0] == "pydantic"


def _check_known(extra: Any, place: str) -> None:
    """Refuse metadata that would have no effect."""
    if isinstance(extra, AliasPath | AliasChoices):
        raise RegistrationError(f"{place}: an alias has no effect here; write Field(validation_alias=...)")
    if hasattr(extra, "__get_pydantic_core_schema__") or hasattr(extra, "__get_pydantic_json_schema__"):
        return
    if inspect.isroutine(extra) or isinstance(extra, functools.partial):
        name = getattr(extra, "__name__", "function")
        raise RegistrationError(
            f"{place}: a bare function in Annotated has no effect; write AfterValidator({name}) of pydantic"
        )
    if not isinstance(extra, _KNOWN) and not _is_pydantic(extra):
        raise RegistrationError(
            f"{place}: no validator enforces {extra!r}; check it in an AfterValidator of pydantic, describe it with "
            f"Field(description=...), or leave it out"
        )
