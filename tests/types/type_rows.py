"""A row of the table of annotations, and the function that a row registers as a tool."""

import datetime as dt
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import Any

import attrs
import msgspec
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

NOTHING: Any = ...
"""Marks a parameter without a default."""


@attrs.frozen
class Row:
    """One annotation with values that it accepts and values that it rejects.

    Attributes:
        name: The name of the row, which is unique.
        annotation: The annotation of the parameter ``v``.
        valid: JSON values that mcpbus accepts.
        invalid: JSON values that mcpbus rejects.
        default: The default of the parameter, if it has one.
        refused: A pattern for the error, if mcpbus refuses to register the annotation.
    """

    name: str
    annotation: Any
    valid: list[Any]
    invalid: list[Any]
    default: Any = NOTHING
    refused: str = ""


def tool_of(row: Row):
    """Return a new function with the row's annotation, which returns its argument as text."""

    async def tool(v):
        return shown(v)

    tool.__annotations__ = {"v": row.annotation, "return": str}
    tool.__defaults__ = None if row.default is NOTHING else (row.default,)
    return tool


@singledispatch
def shown(value: Any) -> str:
    """Return a text that shows the type and the content of a value, the same in every process."""
    if is_dataclass(value):
        return _named(value, {field.name: getattr(value, field.name) for field in fields(value)})
    if attrs.has(type(value)):
        return _named(value, {field.name: getattr(value, field.name) for field in attrs.fields(type(value))})
    return repr(value)


@shown.register
def _(value: BaseModel) -> str:
    names = [*type(value).model_fields, *(value.__pydantic_extra__ or {}), *type(value).model_computed_fields]
    return _named(value, {name: getattr(value, name) for name in names})


@shown.register
def _(value: msgspec.Struct) -> str:
    return _named(value, {name: getattr(value, name) for name in value.__struct_fields__})


@shown.register
def _(value: re.Pattern) -> str:
    return f"re.compile({value.pattern!r})"


@shown.register(Secret)
@shown.register(SecretStr)
@shown.register(SecretBytes)
def _(value: Any) -> str:
    return f"{type(value).__name__}({shown(value.get_secret_value())})"


@shown.register(dt.datetime)
@shown.register(dt.time)
def _(value: dt.datetime | dt.time) -> str:
    return (
        repr(value)
        if value.tzinfo is None
        else f"{type(value).__name__}.fromisoformat({value.isoformat()!r})"
    )


@shown.register
def _(value: Mapping) -> str:
    return _bracketed(
        value, "{", ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()), "}"
    )


@shown.register(set)
@shown.register(frozenset)
def _(value: set | frozenset) -> str:
    return _bracketed(value, "{", ", ".join(sorted(map(shown, value))), "}")


@shown.register
def _(value: Iterator) -> str:
    return f"iterator([{', '.join(map(shown, value))}])"


@shown.register(list)
@shown.register(deque)
def _(value: list | deque) -> str:
    return _bracketed(value, "[", ", ".join(map(shown, value)), "]")


@shown.register
def _(value: tuple) -> str:
    if hasattr(value, "_asdict"):
        return _named(value, value._asdict())
    return _bracketed(value, "(", ", ".join(map(shown, value)) + ("," if len(value) == 1 else ""), ")")


def _bracketed(value: Any, opening: str, inside: str, closing: str) -> str:
    """Return the items in brackets, as a literal if the value is of a builtin type that has one."""
    text = f"{opening}{inside}{closing}"
    kind = type(value)
    return (
        text
        if kind in {list, tuple, dict} or (kind is set and value)
        else f"{kind.__name__}({text if value else ''})"
    )


def _named(value: Any, content: dict[str, Any]) -> str:
    return f"{type(value).__name__}({', '.join(f'{name}={shown(item)}' for name, item in content.items())})"
