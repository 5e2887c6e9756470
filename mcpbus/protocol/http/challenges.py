"""Challenges as a server writes them into WWW-Authenticate (RFC 9110, section 11.6.1), for who is refused.

One field may have several, and an answer several fields. A comma separates challenges, and the parameters of each as well: what follows
tells which. What breaks the grammar in ways that servers do is read all the same, a URL without quotes above all; of what cannot be read,
no more is left out than up to the next comma, or where a quotation does not end, up to the end of its field.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SPACE: Final = r"[ \t]*"
_GAP: Final = re.compile(r"[ \t,]*")
_SCHEME: Final = re.compile(rf"({_WORD})(?=[ \t,]|$)")
_TOKEN68: Final = re.compile(rf"[ \t]+([A-Za-z0-9._~+/-]+=*){_SPACE}(?=,|$)")
_PARAMETER: Final = re.compile(rf'({_WORD}){_SPACE}={_SPACE}(?:"((?:[^"\\]|\\.)*)"|([^ \t,"]*))')
_ESCAPED: Final = re.compile(r"\\(.)")
# A quotation that does not end is looked through once: a field of a hundred thousand characters may have half as many beginnings of one.
_UNREADABLE: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[^,"])*+')
_MOST_PARTS: Final = 1_000
"""How many schemes, parameters and unreadable parts are read. They are read in one piece, while no other task runs."""


@attrs.frozen
class Challenge:
    """One of them.

    Attributes:
        scheme: How the client is to say who it is, in lower case.
        parameters: What goes with it, by names in lower case; of two with one name the first.
        token: What goes with it in schemes that have no parameters.
    """

    scheme: str
    parameters: Mapping[str, str] = attrs.Factory(dict)
    token: str | None = None


def read_challenges(fields: Iterable[str]) -> list[Challenge]:
    """Read the challenges of an answer: no more than its first 1,000 parts.

    Args:
        fields: The values of its fields WWW-Authenticate.
    """
    parts = iter(range(_MOST_PARTS))
    return [challenge for field in fields for challenge in _read_field(field, parts)]


def _read_field(field: str, parts: Iterator[int]) -> list[Challenge]:
    found: list[Challenge] = []
    parameters: dict[str, str] = {}
    place = 0
    while (place := _end(_GAP, field, place)) < len(field) and next(parts, None) is not None:
        if (parameter := _PARAMETER.match(field, place)) is not None and found:
            name, quoted, plain = parameter.groups()
            parameters.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
            place = parameter.end()
        elif (scheme := _SCHEME.match(field, place)) is not None:
            token = _TOKEN68.match(field, scheme.end())
            parameters = {}
            found.append(Challenge(scheme[1].lower(), parameters, token[1] if token else None))
            place = (token or scheme).end()
        else:
            place = max(_end(_UNREADABLE, field, place), place + 1)
    return found


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return place if found is None else found.end()
