"""Where in a value is what JSON cannot hold, for whoever has to mend it."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

_HALF = re.compile("[\ud800-\udfff]")
_AROUND = 40
"""How many characters of a long text are shown on either side of its fault."""
_encode = msgspec.json.Encoder().encode
_NESTED = (dict, list, tuple)
_CONTAINERS = (list, tuple, set, frozenset)


def plain(value: Any) -> str | int | float:
    """Give a text or number of a class of its own, such as NumPy's float64 or a template's Markup, as what it is to JSON.

    Raises:
        TypeError: it is something else, which has no JSON form.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(
        f"what is of type {type(value).__qualname__} has no JSON form; make it a text, number, list, dict or dataclass"
    )


def with_place(error: TypeError, value: Any, encode: Callable[[Any], object], name: str = "$") -> TypeError:
    """Return an error of `encode` as one that says where in `value` its reason is.

    Args:
        error: What was raised.
        value: What cannot be encoded.
        encode: What raises it.
        name: What the value is to its author.
    """
    place = name
    found: tuple[str, Any, TypeError] | None = ("", value, error)
    while found is not None:
        step, value, error = found
        place += step
        found = next(_faulty(_parts(value), encode), None)
    if isinstance(value, Mapping):
        for _, key, _ in _faulty(((".", {key: None}) for key in value), encode):
            return TypeError(f"a key is a text or a number, unlike {next(iter(key))!r} - at `{place}`")
    return TypeError(f"{error} - at `{place}`")


def _faulty(
    parts: Iterable[tuple[str, Any]], encode: Callable[[Any], object]
) -> Iterator[tuple[str, Any, TypeError]]:
    for step, part in parts:
        try:
            encode(part)
        except TypeError as error:
            yield step, part, error
        except (ValueError, RecursionError):
            continue  # that is another error


def check_keys(value: Any, place: str = "$") -> None:
    """Refuse dicts in plain data with two keys that are the same to JSON, such as 1 and ``"1"``: of which readers take one is up to them.

    Raises:
        TypeError: One has.
    """
    if isinstance(value, dict):
        if len(set(map(type, value))) > 1:  # those of one type do not meet
            texts: dict[str, Any] = {}
            for key in value:
                if (other := texts.setdefault(str(key), key)) is not key:
                    raise TypeError(f"the keys {other!r} and {key!r} are the same to JSON - at `{place}`")
        steps: Iterable[tuple[Any, Any]] = value.items()
        form = ".{}"
    elif isinstance(value, list | tuple):
        steps, form = enumerate(value), "[{}]"
    else:
        return
    for step, part in steps:
        if isinstance(part, _NESTED):
            check_keys(part, place + form.format(step))


def find_non_finite(value: Any) -> str | None:
    """Tell which number in `value` is none to JSON, and where; None if there is none."""
    for part, place in _non_finite(value, "$"):
        return f"JSON has no number {part}; make it None, and have the annotation say float | None - at `{place}`"
    return None


def check_json(value: Any, name: str) -> None:
    """Refuse what JSON cannot hold as it is, and what would be null there.

    Args:
        value: What is to be encoded.
        name: What it is to its author.

    Raises:
        TypeError: Something in it has no JSON form; the message says where.
        ValueError: A text or a number in it has none, or it is nested too deeply.
    """
    try:
        _encode(value)
    except UnicodeEncodeError as error:
        raise ValueError(find_half(value, name) or str(error)) from None
    except TypeError as error:
        raise with_place(error, value, _encode, name) from None
    except RecursionError:
        raise ValueError(f"what is nested there is too deep, or contains itself - at `{name}`") from None
    for part, place in _non_finite(value, name):
        raise ValueError(f"JSON has no number {part} - at `{place}`")


def _non_finite(value: Any, name: str) -> Iterator[tuple[float, str]]:
    for part, place in _walk(value, name, frozenset()):
        if isinstance(part, float) and not math.isfinite(part):
            yield part, place


def find_half(value: Any, name: str = "$") -> str | None:
    """Tell which text in `value`, which is of this name to its author, has half of a surrogate pair, and where; None if there is none."""
    for part, place in _walk(value, name, frozenset()):
        for text in part if isinstance(part, Mapping) else (part,):
            if isinstance(text, str) and (half := _HALF.search(text)):
                around = text[max(0, half.start() - _AROUND) : half.end() + _AROUND]
                return f"{around!r} has half of a surrogate pair, which is no Unicode; write the whole character - at `{place}`"
    return None


def _walk(value: Any, place: str, within: frozenset[int]) -> Iterator[tuple[Any, str]]:
    yield value, place
    if id(value) not in within:
        for step, part in _parts(value):
            yield from _walk(part, place + step, within | {id(value)})


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value is made of, each with the step to it."""
    if isinstance(value, Mapping):
        yield from ((f".{key}", part) for key, part in value.items())
    elif isinstance(value, _CONTAINERS):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    else:
        kind = type(value)
        names = [*getattr(kind, "__struct_fields__", ())]
        if dataclasses.is_dataclass(kind):
            # Others than these, such as what is the class's, are not encoded.
            names += [field.name for field in dataclasses.fields(kind)]
        names += [field.name for field in getattr(kind, "__attrs_attrs__", ())]
        for name in names:
            yield f".{name}", getattr(value, name, None)
