"""Arguments of a tool as they are typed: ``key=value``, read by the tool's schema, ``key:=json``, or a JSON object of several."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from mcpbus.cli.schemas import faults, parse_typed


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
        return {key: _read_json(f"{key}:={text}", text)}
    described = properties.get(key) if isinstance(properties, dict) else None
    return {key: parse_typed(text, described, schema)}


def _read_object(word: str) -> dict[str, Any]:
    given = _read_json(word, word)
    assert isinstance(given, dict)  # noqa: S101 - it begins with a brace
    return given


def _check_unicode(word: str) -> None:
    """Raise a ValueError if it has bytes that could not be decoded, which Python keeps as halves of surrogate pairs."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{word!r} is not in UTF-8, as JSON is") from None


def _read_json(word: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as fault:
        raise ValueError(f"{word} is no JSON: {fault}") from None
