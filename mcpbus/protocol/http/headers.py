"""What HTTP header fields say: a multimap of them, and readers for the few that matter here (RFC 9110)."""

import base64
import binascii
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar, overload

import msgspec

from mcpbus.protocol.http.mirrored_fields import Values, read_announcement

_BLANKS: Final = " \t"
# Commas and semicolons inside a quoted string separate nothing (RFC 9110, section 5.6). One that nobody closes goes on to
# the end: to look for another way to read it, from each quotation mark in it, would take a long header seconds.
_ELEMENTS: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.?)*+"?)+')
_PARAMETERS: Final = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.?)*+"?)+')
_ZERO: Final = re.compile(r"0(\.0*)?")
_PLAIN: Final = re.compile(r"[\t -~]*")
_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
# Clients say the same few things for ever; what is longer is read each time, so that nobody can fill memory with it.
_REMEMBERED_BYTES: Final = 256

T = TypeVar("T")


def group_fields(fields: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Values]:
    """Group fields by name, as `Headers.of` takes them.

    A tuple that grew with each copy of a field would take time by the square of their number.

    Args:
        fields: Names in lower case with values, in the order in which they arrived.
    """
    grouped: dict[bytes, Values] = {}
    repeated: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        if name in grouped:
            repeated.setdefault(name, []).append(value)
        else:
            grouped[name] = value
    for name, copies in repeated.items():
        first = grouped[name]
        assert isinstance(first, bytes)  # noqa: S101 - tuples are made here
        grouped[name] = (first, *copies)
    return grouped


class LateFields(Protocol):
    """Header fields of a request that nobody has looked at yet; their names are in lower case."""

    def find(self, name: bytes, /) -> Values | None:
        """One of them, as `Headers.raw` has it; None if it is not there, or takes as long to find as all."""

    def all(self) -> Sequence[tuple[bytes, bytes]]:
        """All of them, in the order in which they arrived."""


class Headers(Mapping[str, str]):
    """The header fields of one request, as a mapping that nobody changes: ``headers["Authorization"]``.

    A name is text or bytes, in upper or lower case. A value is text: its bytes read as Latin-1, without the blanks around
    it, the copies of a field that came several times joined as RFC 9110 section 5.3 has it. Nothing is converted before it is
    asked for, and fastest are bytes in lower case.

    Attributes:
        raw: Given a name as bytes in lower case, returns the field as it arrived, for comparing: its value, all of its values if it
            came several times, or None.
        accepted: What Accept says: order, parameters, wildcards and q=0 all count; no field at all accepts everything (rule W-3).
        announcement: What they say to the letter of the body; None if that is for a closer look.
    """

    __slots__ = ("_fields", "accepted", "announcement", "raw")

    raw: Callable[[bytes], Values | None]

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the fields in the order in which they arrived, as ASGI gives them."""
        self._take(group_fields((name.lower(), value) for name, value in fields))

    @classmethod
    def of(cls, fields: dict[bytes, Values]) -> "Headers":
        """Make one of a mapping from names in lower case, which is not copied, to values; several of them as a tuple."""
        headers = cls.__new__(cls)
        headers._take(fields)  # noqa: SLF001  # its own kind
        return headers

    def _take(self, fields: dict[bytes, Values]) -> None:
        self._fields = fields
        self.raw = fields.get
        self.accepted = _read_accept(fields.get(b"accept"))
        self.announcement = read_announcement(fields.get)

    def plus(self, late: LateFields) -> "Headers":
        """Return the same with more fields, none of which is among these, nor says what the client accepts, nor repeats the body.

        Args:
            late: These fields, which are looked at once one is asked for that is not among those.
        """
        headers = _LateHeaders.__new__(_LateHeaders)
        headers._fields = headers.early = self._fields
        headers.accepted = self.accepted
        headers.announcement = self.announcement
        headers.late = late
        headers.whole = None
        return headers

    def _all(self) -> dict[bytes, Values]:
        """All fields, also those that are looked at late."""
        return self._fields

    def all(self, name: str | bytes) -> list[str]:
        """Every copy of a field, without the blanks around it."""
        values = self._find(name)
        if values is None:
            return []
        if isinstance(values, bytes):
            return [values.decode("latin-1").strip(_BLANKS)]
        return [value.decode("latin-1").strip(_BLANKS) for value in values]

    @overload
    def get(self, name: str | bytes, /) -> str | None: ...
    @overload
    def get(self, name: str | bytes, /, default: str | T) -> str | T: ...
    def get(self, name: str | bytes, /, default: str | T | None = None) -> str | T | None:
        """The field's value, or `default` if it is absent."""
        values = self._find(name)
        if values is None:
            return default
        return (
            values.decode("latin-1").strip(_BLANKS)
            if isinstance(values, bytes)
            else ", ".join(self.all(name))
        )

    def __getitem__(self, name: str | bytes) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str | bytes) and self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in lower case."""
        return (name.decode("latin-1") for name in self._all())

    def __len__(self) -> int:
        return len(self._all())

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The fields one by one, by their names in lower case, the copies of one together."""
        return [
            (name, value)
            for name, values in self._all().items()
            for value in ((values,) if isinstance(values, bytes) else values)
        ]

    def without(self, name: bytes) -> "Headers":
        """The same without a field, whose name is in lower case."""
        return Headers.of({other: value for other, value in self._all().items() if other != name})

    def _find(self, name: str | bytes) -> Values | None:
        # Only ASCII is folded: to str.lower, a Kelvin sign would be a k.
        return self.raw((name.encode(errors="replace") if isinstance(name, str) else name).lower())

    def __repr__(self) -> str:
        return f"<Headers {', '.join(self)}>"


class _LateHeaders(Headers):
    """Header fields of which some are not looked at before one is asked for that is not among the others.

    Most requests are asked for one of them, such as their session, and nothing else. Another thread may ask meanwhile, and do the
    same.

    Attributes:
        early: The others; besides them, those that were asked for are in `_fields`.
        late: Those that are looked at late.
        whole: All; None before one was asked for that is not there.
    """

    __slots__ = ("early", "late", "whole")

    early: dict[bytes, Values]
    late: LateFields
    whole: dict[bytes, Values] | None

    def raw(self, name: bytes) -> Values | None:
        """As of all headers."""
        values = self._fields.get(name)
        if values is None:
            values = self.late.find(name) if self.whole is None else None
            if values is None:
                return self._all().get(name)
            self._fields = {**self._fields, name: values}
        return values

    def _all(self) -> dict[bytes, Values]:
        if self.whole is None:
            self.whole = _join(self.early, self.late.all())
        return self.whole


def _join(early: dict[bytes, Values], late: Sequence[tuple[bytes, bytes]]) -> dict[bytes, Values]:
    """Return the fields that were looked at early together with others, whose names are not among theirs."""
    fields = {**early, **dict(late)}
    return fields if len(fields) == len(early) + len(late) else {**early, **group_fields(late)}


class AcceptHeader(msgspec.Struct, frozen=True, gc=False):
    """Which of the two forms of an answer the client takes."""

    json: bool
    sse: bool


def _read_accept(raw: bytes | tuple[bytes, ...] | None) -> AcceptHeader:
    if raw is None:
        return AcceptHeader(json=True, sse=True)
    if isinstance(raw, tuple):
        raw = b", ".join(raw)
    return _remembered_accept(raw) if len(raw) <= _REMEMBERED_BYTES else _read_ranges(raw)


def _read_ranges(raw: bytes) -> AcceptHeader:
    text = raw.decode("latin-1")
    ranges: dict[str, bool] = {}
    for element in _ELEMENTS.findall(text):
        name, *parameters = _PARAMETERS.findall(element) or [""]
        weights = (
            weight.strip(_BLANKS)
            for key, _, weight in (p.partition("=") for p in parameters)
            if _is_weight(key)
        )
        wanted = not any(_ZERO.fullmatch(weight) for weight in weights)
        name = name.strip(_BLANKS).lower()
        ranges[name] = ranges.get(name, False) or wanted
    return AcceptHeader(
        json=_wants(ranges, "application", "json"), sse=_wants(ranges, "text", "event-stream")
    )


_remembered_accept = functools.lru_cache(maxsize=64)(_read_ranges)


def _is_weight(key: str) -> bool:
    return key.strip(_BLANKS).lower() == "q"


def _wants(ranges: dict[str, bool], kind: str, subtype: str) -> bool:
    """The most specific range that matches decides (RFC 9110, section 12.5.1)."""
    for name in (f"{kind}/{subtype}", f"{kind}/*", "*/*"):
        if name in ranges:
            return ranges[name]
    return False


def is_json(headers: Headers) -> bool:
    """Whether Content-Type is application/json, in UTF-8 if it says a charset at all (rules W-4, J-11)."""
    raw = headers.raw(b"content-type")
    if not isinstance(raw, bytes):
        return False
    return _remembered_json(raw) if len(raw) <= _REMEMBERED_BYTES else _is_json(raw)


def _is_json(raw: bytes) -> bool:
    text = raw.decode("latin-1")
    name, *parameters = _PARAMETERS.findall(text) or [""]
    if name.strip(_BLANKS).lower() != "application/json":
        return False
    pairs = (parameter.partition("=") for parameter in parameters)
    charsets = (
        value.strip(_BLANKS).strip('"').lower()
        for key, _, value in pairs
        if key.strip(_BLANKS).lower() == "charset"
    )
    return all(charset in {"utf-8", "utf8"} for charset in charsets)


_remembered_json = functools.lru_cache(maxsize=64)(_is_json)


def is_plain(value: str) -> bool:
    """Whether a field's value holds nothing but visible ASCII and blanks, which everybody reads alike."""
    return _PLAIN.fullmatch(value) is not None


def encode_mirrored(text: str) -> str:
    """Write text as the value of Mcp-Name or Mcp-Param-*, within a Base64 sentinel where it cannot stand as it is (rule X-22)."""
    if is_plain(text) and not _SENTINEL.fullmatch(text) and text == text.strip(_BLANKS):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decode_mirrored(value: str) -> str:
    """Read the value of Mcp-Name or Mcp-Param-*, which may be wrapped in a Base64 sentinel (rules X-22, X-23).

    Args:
        value: the field's value without the blanks around it. `=?base64?…?=`, markers exact, is decoded; all else is literal.

    Raises:
        ValueError: if it holds what a header must not, or its Base64 is not strict, or that does not hold UTF-8.
    """
    if not is_plain(value):
        raise ValueError("it holds characters other than visible ASCII, which belong into =?base64?…?=")
    wrapped = _SENTINEL.fullmatch(value)
    if wrapped is None:
        return value
    try:
        return base64.b64decode(wrapped[1], validate=True).decode()
    except binascii.Error:
        raise ValueError(
            "its Base64 is malformed: the standard alphabet and full padding are needed"
        ) from None
    except UnicodeDecodeError:
        raise ValueError("its Base64 does not hold UTF-8") from None


NO_HEADERS: Final = Headers(())
"""Of a request that did not come over HTTP."""
