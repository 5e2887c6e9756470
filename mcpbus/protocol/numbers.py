"""Validators of options that are numbers, which say so where one is something else."""

from collections.abc import Callable
from operator import ge as _at_least
from operator import gt as _more_than
from typing import Any

Validator = Callable[[Any, Any, Any], None]


def ge(bound: float) -> Validator:
    """Make a validator of numbers that are at least so large."""
    return _validator(bound, _at_least, ">=")


def gt(bound: float) -> Validator:
    """Make a validator of numbers that are larger."""
    return _validator(bound, _more_than, ">")


def _validator(bound: float, admits: Callable[[Any, Any], bool], sign: str) -> Validator:
    def validate(options: object, field: Any, value: Any) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"{type(options).__name__}: {field.name} is a number, not {value!r}")
        if not admits(value, bound):
            raise ValueError(f"{field.name!r} must be {sign} {bound}: {value}")

    return validate
