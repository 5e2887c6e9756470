"""Validators of options, for attrs and for what has none of its fields: each says what would be right."""

import sys
from collections.abc import Callable
from operator import ge as _at_least
from operator import gt as _more_than
from typing import Any, Final

Validator = Callable[[Any, Any, Any], None]

_WHOLE: Final = (int, int | None)

LONGEST_SECONDS: Final = 2**53 // 1000
"""The longest time that clients can be told: in milliseconds, as an integer, no larger than JSON's numbers are exact."""


def ge(bound: float) -> Validator:
    """Make a validator of numbers that are at least so large."""
    return _validator(bound, _at_least, ">=")


def gt(bound: float) -> Validator:
    """Make a validator of numbers that are larger."""
    return _validator(bound, _more_than, ">")


def one_of(*words: str) -> Validator:
    """Make a validator of words."""

    def validate(_options: object, field: Any, value: Any) -> None:
        if value not in words:
            raise ValueError(f"{field.name} is {value!r}: it must be {' or '.join(map(repr, words))}")

    return validate


def flag(options: object, field: Any, value: Any) -> None:
    """Refuse what is neither True nor False: text counts as true, whatever it says.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{type(options).__name__}: {field.name} is True or False, not {value!r}")


def text(options: object, field: Any, value: Any) -> None:
    """Refuse what is no text.

    Raises:
        TypeError: it is something else.
    """
    check_text(type(options).__name__, **{field.name: value})


def check_numbers(owner: str, **numbers: Any) -> None:
    """Refuse what is no number, by the names of the options.

    Raises:
        TypeError: one is none.
        ValueError: one is so large that nothing can be reckoned with it.
    """
    for name, value in numbers.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"{owner}: {name} is a number, not {value!r}")
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise ValueError(f"{owner}: {name} is a number of more than 300 digits")


def check_not_negative(owner: str, **numbers: Any) -> None:
    """Refuse what is no number that is 0 or more, by the names of the options.

    Raises:
        TypeError: one is no number.
        ValueError: one is negative, or NaN.
    """
    check_numbers(owner, **numbers)
    for name, value in numbers.items():
        if not value >= 0:
            raise ValueError(f"{owner}: {name} is 0 or more, not {value!r}")


def check_positive(owner: str, **numbers: Any) -> None:
    """Refuse what is no number that is more than 0, by the names of the options.

    Raises:
        TypeError: one is no number.
        ValueError: one is not positive.
    """
    check_numbers(owner, **numbers)
    for name, value in numbers.items():
        if not value > 0:
            raise ValueError(f"{owner}: {name} is more than 0, not {value!r}")


def wire_duration(options: object, field: Any, value: Any) -> None:
    """Refuse what `check_told_seconds` does."""
    check_told_seconds(type(options).__name__, 0.001, **{field.name: value})


def check_told_seconds(owner: str, least: float, /, **times: Any) -> None:
    """Refuse what is no time that clients can be told, in whole milliseconds, or is shorter than the shortest.

    Raises:
        TypeError: one is no number.
        ValueError: one is too short, or too long.
    """
    check_numbers(owner, **times)
    for name, seconds in times.items():
        if (fault := told_seconds_fault(name, seconds, least)) is not None:
            raise ValueError(f"{owner}: {fault}")


def told_seconds_fault(name: str, seconds: float, least: float) -> str | None:
    """Say why that is no time that clients can be told; None if it is one."""
    if least <= seconds <= LONGEST_SECONDS:
        return None
    return f"{name} is a number of seconds, at least {least} and at most {LONGEST_SECONDS}, not {seconds!r}"


def check_text(owner: str, **texts: Any) -> None:
    """Refuse what is no text, by the names of the options; it is not quoted, as it may be a secret.

    Raises:
        TypeError: one is none.
    """
    for name, value in texts.items():
        if not isinstance(value, str):
            raise TypeError(f"{owner}: {name} is a text, and this is of type {type(value).__name__}")


def _validator(bound: float, admits: Callable[[Any, Any], bool], sign: str) -> Validator:
    def validate(options: object, field: Any, value: Any) -> None:
        owner = type(options).__name__
        check_numbers(owner, **{field.name: value})
        if field.type in _WHOLE and not isinstance(value, int):
            raise TypeError(f"{owner}: {field.name} is a whole number, not {value!r}")
        if not admits(value, bound):
            raise ValueError(f"{field.name!r} must be {sign} {bound}: {value}")

    return validate
