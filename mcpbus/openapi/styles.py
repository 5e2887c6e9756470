"""Values of parameters as text, by their style.

Source: OpenAPI 3.1.1, "Style Values", "Style Examples" and appendix C; RFC 6570. Where the specification leaves a combination undefined,
the nearest one that is defined is used: exploded lists of ``spaceDelimited`` and ``pipeDelimited`` are those of ``form``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_DELIMITERS: Final[Mapping[str, str]] = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}

STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles that each place of a parameter has, the default one first."""


class StyleError(ValueError):
    """A value has no form in a style; the text may go to the model."""


def as_text(value: Any) -> str:
    """Return a value that is no list and no object, as text.

    Raises:
        StyleError: It is a list or an object.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case None:
            return ""
        case int() | float():
            return msgspec.json.encode(value).decode()
        case _:
            raise StyleError("a list or an object cannot lie within another one here")


def escape(text: str) -> str:
    """Return a text in which all but unreserved characters are percent-encoded."""
    return quote(text, safe="", errors="replace")


def escape_most(text: str) -> str:
    """Return a text in which reserved characters remain, and triples such as ``%2F`` do."""
    return quote(text, safe=f"{_RESERVED}%", errors="replace")


def path_text(name: str, value: Any, style: str, *, explode: bool) -> str:
    """Return the text in place of ``{name}`` in a path.

    Raises:
        StyleError: The value has no such form, or leaves its segment.
    """
    match style:
        case "label":
            text = "." + _joined(value, explode, "." if explode else ",", escape)
        case "matrix":
            text = _matrix(escape(name), value, explode=explode)
        case _:
            text = _joined(value, explode, ",", escape)
    if not text:
        raise StyleError("it is empty, and the path has nothing in its place then")
    return text


def header_text(value: Any, *, explode: bool) -> str:
    """Return the text of a header field, in which nothing is escaped.

    Raises:
        StyleError: The value has no such form.
    """
    return _joined(value, explode, ",", str)


def query_pairs(
    name: str, value: Any, style: str, *, explode: bool, reserved: bool = False
) -> list[tuple[str, str]]:
    """Return the names and values that a query gets, escaped.

    Raises:
        StyleError: The value has no such form.
    """
    write = escape_most if reserved else escape
    key = escape(name)
    if style == "deepObject":
        if not isinstance(value, dict):
            raise StyleError("the style deepObject is for objects")
        return [(f"{key}%5B{escape(part)}%5D", text) for part, text in _deep(value, write)]
    if explode and isinstance(value, list):
        return [(key, write(as_text(each))) for each in value]
    if explode and isinstance(value, dict):
        return [(escape(part), write(as_text(each))) for part, each in value.items()]
    return [(key, _joined(value, False, _DELIMITERS.get(style, ","), write))]


def _deep(value: dict[str, Any], write: Callable[[str], str]) -> list[tuple[str, str]]:
    return [
        (part, write(as_text(one)))
        for part, each in value.items()
        for one in (each if isinstance(each, list) else [each])
    ]


def _matrix(name: str, value: Any, *, explode: bool) -> str:
    if explode and isinstance(value, dict):
        return "".join(f";{escape(part)}={escape(as_text(each))}" for part, each in value.items())
    if explode and isinstance(value, list):
        return "".join(f";{name}={escape(as_text(each))}" for each in value)
    text = _joined(value, False, ",", escape)
    return f";{name}={text}" if text else f";{name}"


def _joined(value: Any, explode: bool, separator: str, write: Callable[[str], str]) -> str:
    match value:
        case list():
            return separator.join(write(as_text(each)) for each in value)
        case dict() if explode:
            return separator.join(f"{write(part)}={write(as_text(each))}" for part, each in value.items())
        case dict():
            return separator.join(
                text for part, each in value.items() for text in (write(part), write(as_text(each)))
            )
        case _:
            return write(as_text(value))
