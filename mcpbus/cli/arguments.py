"""Arguments of a tool as they are typed: ``key=value``, read by the tool's schema, or ``key:=json``."""

from collections.abc import Sequence
from typing import Any

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
        if not _is_unicode(word):
            raise ValueError(f"{word!r} is not in UTF-8, as JSON is")
        key, equals, text = word.partition("=")
        if not equals or key in {"", ":"}:
            raise ValueError(f"{word!r} is no argument: write key=value, or key:=json")
        explicit = key.endswith(":")
        key = key.removesuffix(":")
        if key in arguments:
            raise ValueError(f"{key} is given twice; a list is written as {key}:='[1, 2]'")
        described = properties.get(key) if isinstance(properties, dict) else None
        arguments[key] = _read_json(key, text) if explicit else parse_typed(text, described, schema)
    wrong = faults(arguments, schema)
    if wrong is not None:
        raise ValueError(wrong)
    return arguments


def _is_unicode(word: str) -> bool:
    """Whether it has no bytes that could not be decoded, which Python keeps as halves of surrogate pairs."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_json(key: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as fault:
        raise ValueError(f"{key}:={text} is no JSON: {fault}") from None
