"""JSON Schema as people read it, and the arguments of tools as people type them: `key=value`, `key:=json`, or a JSON object.

A schema is a server's text. It may refer to itself in any way, and a few hundred bytes of it can stand for more cases than a program
could ever look at. So each walk visits a part once and ends after `_MOST_STEPS`, and `faults` leaves a schema alone whose
cases multiply: the server checks the arguments in any case.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from mcpbus.features.schemas.json_schema import RegistrationError, compile_schema

_MOST_STEPS: Final = 1_000
"""Parts of a schema that one walk visits."""
_MOST_CASES: Final = 1_000_000
"""Cases of a schema against which a value is held at most; each takes less than a microsecond."""
_DEEPEST: Final = 16
_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
_LONGEST_CHOICES: Final = 60
_NOWHERE: Final[dict[str, Any]] = {}
_POINTER: Final = re.compile("#(/.*)?")
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_IN_PLACE: Final = ("not", "if", "then", "else", "dependentSchemas", "dependencies")
_ELSEWHERE: Final = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
"""With these a reference is more than a path in the document."""


def types_of(schema: Any, root: Any) -> list[str]:
    """Return which types of JSON a schema allows, as far as it says so; none if it does not."""
    found: dict[str, None] = {}
    waiting, seen = [schema], set[int]()
    while waiting and len(seen) < _MOST_STEPS:
        part = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        if "$ref" in part:
            waiting.append(_resolve(part["$ref"], root))
            continue
        kinds = part.get("type")
        if isinstance(kinds, str | list):
            found |= dict.fromkeys([kinds] if isinstance(kinds, str) else map(str, kinds))
            continue
        values = (
            part["enum"] if isinstance(part.get("enum"), list) else [part["const"]] if "const" in part else []
        )
        found |= dict.fromkeys(_NAMES[type(value)] for value in values)
        parts = [each for keyword in _LISTS if isinstance(each := part.get(keyword), list)]
        waiting += [each for several in parts for each in several][::-1][:_MOST_STEPS]
    return [*found]


def label(schema: Any, root: Any) -> str:
    """Describe in a few words what a schema allows: `string`, `integer or null`, `"red" | "green"`, `array of string`."""
    arrays, seen = "", set[int]()
    while len(seen) < _DEEPEST:
        seen.add(id(schema))
        members = _members(schema, root)
        choices = members("enum")
        if isinstance(choices, list):
            shown = " | ".join(map(_json, choices[:_LONGEST_CHOICES]))
            if len(choices) <= _LONGEST_CHOICES and len(shown) <= _LONGEST_CHOICES:
                return arrays + shown
        kinds = types_of(schema, root)
        items = members("items")
        if kinds != ["array"] or not isinstance(items, dict):
            return arrays + (" or ".join(kinds) or "any")
        arrays += "array of "
        schema = items if "$ref" not in items else _resolve(items["$ref"], root)
        if id(schema) in seen:
            break
    return arrays + "..."


def parse_typed(text: str, schema: Any, root: Any) -> Any:
    """Read what somebody typed as the first type that a schema allows and that it can be; text otherwise."""
    kinds = types_of(schema, root)
    for kind in _READERS:
        if kind in kinds:
            try:
                return _READERS[kind](text)
            except ValueError:
                continue
    return text


def faults(value: Any, schema: Any, *, formats: bool = False) -> str | None:
    """Describe how a value does not conform to a schema; None where it does, or the schema cannot be used here."""
    if not _is_bounded(value, schema):
        return None
    try:
        return compile_schema(schema, "a schema of the server's", formats=formats).faults(value)
    except RegistrationError:
        return None


def _is_bounded(value: Any, schema: Any) -> bool:
    """Return whether a value is held against a schema in a bounded time."""
    cases = _Cases(schema)
    try:
        most = max(map(cases.count, cases.parts()), default=1)
    except (RecursionError, OverflowError):
        return False
    together: int = most ** _depth(value)
    return together <= _MOST_CASES


class _Cases:
    """Counts the cases of each part of a schema: the parts that hold for the very same value, as often as they are referred to.

    Raises:
        OverflowError: There is no end of them, or they cannot be known.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._counts: dict[int, int] = {}
        self._counting: set[int] = set()

    def parts(self) -> Iterator[dict[str, Any]]:
        """Return all parts, each of which may hold for a value within the value."""
        waiting, steps = [self._root], 0
        while waiting:
            steps += 1
            if steps > _MOST_STEPS * 10:
                raise OverflowError
            part = waiting.pop()
            if isinstance(part, dict):
                if part is not self._root and not part.keys().isdisjoint(_ELSEWHERE):
                    raise OverflowError
                yield part
                waiting += part.values()
            elif isinstance(part, list):
                waiting += part

    def count(self, part: Any) -> int:
        """Count the cases of a part."""
        if not isinstance(part, dict):
            return 0
        key = id(part)
        if key in self._counting:
            raise OverflowError
        if key not in self._counts:
            self._counting.add(key)
            cases = 1 + sum(map(self.count, self._in_place(part)))
            # Those that are left over are found by a look at all others again.
            again = 2 if "unevaluatedProperties" in part or "unevaluatedItems" in part else 1
            self._counts[key] = cases * again
            self._counting.remove(key)
            if self._counts[key] > _MOST_CASES:
                raise OverflowError
        return self._counts[key]

    def _in_place(self, part: dict[str, Any]) -> Iterator[Any]:
        if "$ref" in part:
            if not _POINTER.fullmatch(str(part["$ref"])):
                raise OverflowError
            yield _resolve(part["$ref"], self._root)
        for keyword in _LISTS:
            parts = part.get(keyword)
            yield from parts if isinstance(parts, list) else ()
        for keyword in _IN_PLACE:
            one = part.get(keyword)
            yield from one.values() if keyword.startswith("depend") and isinstance(one, dict) else (one,)


def _depth(value: Any) -> int:
    """Return how deep a value is nested; 1 for one that is not."""
    level, depth = [value], 0
    while level:
        depth += 1
        inner = [
            each.values() if isinstance(each, dict) else each
            for each in level
            if isinstance(each, dict | list)
        ]
        level = [each for several in inner for each in several]
    return depth


def _members(schema: Any, root: Any) -> Callable[[str], Any]:
    """Return a function that finds a member of a schema, or else of the one that it refers to; neither is copied."""
    own = schema if isinstance(schema, dict) else {}
    other = _resolve(own["$ref"], root) if "$ref" in own else {}
    return lambda name: own.get(name, other.get(name))


def _resolve(reference: Any, root: Any) -> dict[str, Any]:
    """Return what a reference within the schema itself leads to; nothing if it leads nowhere."""
    found = root
    for step in str(reference).removeprefix("#").split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else _NOWHERE


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _read_json(text: str, *kinds: type) -> Any:
    value = msgspec.json.decode(text)
    if type(value) not in kinds:
        raise ValueError("it is of another type")
    return value


def _read_integer(text: str) -> int:
    value = _read_json(text, int, float)
    if value != int(value):
        raise ValueError("it is no integer")
    return int(value)


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "null": lambda text: _read_json(text, type(None)),
    "boolean": lambda text: _read_json(text.lower(), bool),
    "integer": _read_integer,
    "number": lambda text: _read_json(text, int, float),
    "array": lambda text: _read_json(text, list),
    "object": lambda text: _read_json(text, dict),
    "string": lambda text: text,
}


def read_arguments(words: Sequence[str], schema: Any) -> dict[str, Any]:
    """Read the arguments of a call.

    Args:
        words: As they were typed.
        schema: The tool's input schema.

    Raises:
        ValueError: One cannot be read, or the schema does not allow them; the message says what is wrong.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    arguments: dict[str, Any] = {}
    for word in words:
        _check_unicode(word)
        given = _read_object(word) if word.startswith("{") else _read_pair(word, properties, schema)
        for key in given.keys() & arguments.keys():
            raise ValueError(f"{key} is given twice; a list is written as {key}:='[1, 2]'")
        arguments |= given
    wrong = faults(arguments, schema)
    if wrong is not None:
        raise ValueError(wrong)
    return arguments


def checked_unicode(_ctx: click.Context, _param: click.Parameter, given: str | tuple[str, ...]) -> Any:
    """Return what was typed, one word or several, if it is text: for what is sent as it is, such as a URI.

    Raises:
        click.BadParameter: It is not.
    """
    for word in (given,) if isinstance(given, str) else given:
        try:
            _check_unicode(word)
        except ValueError as wrong:
            raise click.BadParameter(str(wrong)) from None
    return given


def _read_pair(word: str, properties: Any, schema: Any) -> dict[str, Any]:
    key, equals, text = word.partition("=")
    if not equals or key in {"", ":"}:
        raise ValueError(f"{word!r} is no argument: write key=value, or key:=json")
    if key.endswith(":"):
        key = key.removesuffix(":")
        return {key: _decode_json(f"{key}:={text}", text)}
    described = properties.get(key) if isinstance(properties, dict) else None
    return {key: parse_typed(text, described, schema)}


def _read_object(word: str) -> dict[str, Any]:
    given = _decode_json(word, word)
    assert isinstance(given, dict)  # noqa: S101 - it begins with a brace
    return given


def _check_unicode(word: str) -> None:
    """Raise a ValueError if it has bytes that could not be decoded, which Python keeps as halves of surrogate pairs."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{word!r} is not in UTF-8, as JSON is") from None


def _decode_json(word: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as fault:
        raise ValueError(f"{word} is no JSON: {fault}") from None
