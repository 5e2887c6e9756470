"""A parameter of a function, or a field of a class: all that an author states about it."""

import inspect
from typing import Any, Final

import attrs

MISSING: Final[Any] = inspect.Parameter.empty
"""Stands for an absent default or an absent annotation, where None would be a value."""


@attrs.frozen
class Parameter:
    """A parameter that a client fills, or a field.

    Attributes:
        name: The name in Python.
        annotation: The type, with the metadata that the author wrote.
        default: The default, or a ``Field`` of pydantic; `MISSING` for none.
        description: The description that a docstring has.
        optional: Whether it may be left out though it has no default here, because its class fills it.
        alias: The name in JSON, if it is another one.
    """

    name: str
    annotation: Any
    default: Any = MISSING
    description: str | None = None
    optional: bool = attrs.field(default=False, kw_only=True)
    alias: str | None = attrs.field(default=None, kw_only=True)
