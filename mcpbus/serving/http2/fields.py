"""The fields of requests and responses, compressed by HPACK (RFC 7541).

They are most of what a short call costs in HTTP/2, and the same few come again and again.
"""

import functools
import re
from collections.abc import Iterable
from typing import Any, Final

import hpack

Fields = tuple[tuple[bytes, bytes], ...]

_NAME: Final = re.compile(rb":?[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")

_MOST_BLOCKS: Final = 32
_LONGEST_BLOCK: Final = 2048
_EMPTY_TABLE: Final = b"\x20"
"""That the table of what was said before has no room (RFC 7541, section 6.3)."""


class FieldDecoder(hpack.Decoder):
    """Reads the fields that a client sends, and remembers what it has read, for as long as its table stays as it is.

    h2 is not told what they are: it would judge them, and take what is wrong with one request for a fault of the connection.

    Args:
        longest: How long all of them may be, as section 6.5.2 of RFC 9113 counts; what is longer ends the connection.

    Attributes:
        fields: Those that were read last.
    """

    def __init__(self, longest: int) -> None:
        super().__init__(longest)
        self.fields: Fields = ()
        self._known: dict[bytes, Fields] = {}

    def decode(self, data: bytes, raw: bool = False) -> list[hpack.HeaderTuple]:  # noqa: ARG002
        """See `hpack.Decoder`; returns nothing, and leaves it in `fields`."""
        found = self._known.get(data)
        if found is None:
            before = self._state()
            found = tuple(super().decode(data, raw=True))
            if not _is_same(before, self._state()):
                self._known.clear()
            elif len(data) <= _LONGEST_BLOCK:
                if len(self._known) == _MOST_BLOCKS:
                    self._known.clear()
                self._known[data] = found
        self.fields = found
        return []

    def _state(self) -> tuple[object, int, int]:
        """What tells the table from what it is after any change: each entry that is added is a new one, and the first."""
        entries = self.header_table.dynamic_entries
        return entries[0] if entries else None, len(entries), self.header_table_size


def _is_same(before: tuple[object, int, int], after: tuple[object, int, int]) -> bool:
    return before[0] is after[0] and before[1:] == after[1:]


class FieldEncoder(hpack.Encoder):
    """Writes the fields of responses, each for itself: there is no table of them, whatever room the client has for one.

    They are few and short, so little is lost; and nothing that one client asks for says anything about what another was told.
    """

    def __init__(self) -> None:
        super().__init__()
        self._begun = False

    @property
    def header_table_size(self) -> int:
        """How much room there is for a table."""
        return 0

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        """Take note of nothing: the client says how much room it has."""

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:  # noqa: ARG002
        """See `hpack.Encoder`. The last field has no name, and all of them, encoded, for a value."""
        *_, (_, block) = headers
        if self._begun:
            return bytes(block)
        self._begun = True
        return _EMPTY_TABLE + bytes(block)


@functools.lru_cache(maxsize=1024)
def encode_fields(fields: Fields) -> bytes:
    """The fields of a response, compressed. h2 passes them from hand to hand one by one; what is encoded already, at once.

    Raises:
        ValueError: A field cannot be said in HTTP.
    """
    return b"".join([_encode(name, value) for name, value in fields])


@functools.lru_cache(maxsize=1024)
def _encode(name: bytes, value: bytes) -> bytes:
    name = name.lower()
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ValueError(f"this cannot be a header field: {name!r}: {value!r}")
    plain = hpack.Encoder().encode([(name, value)])
    if len(plain) == 1:
        return plain  # it is in everybody's table
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value)])
