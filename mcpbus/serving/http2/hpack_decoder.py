"""Decodes the fields of requests, which HPACK compresses, and the Huffman code in them (RFC 7541, section 5.2 and appendix B).

Fields that are unique to a request come in the Huffman code each time. hpack has a table with a step for half a byte in each state. Here
two steps become one for a whole byte on first use: 8 MB if all are used, for all connections together.
"""

import functools
from typing import Final, TypeAlias

import hpack
from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE
from hpack.table import HeaderTable

from mcpbus.serving.head_limits import MOST_FIELDS
from mcpbus.serving.http2.errors import AbuseFault, ConnectionFault, ErrorCode


class _HuffmanState(dict[int, tuple["_HuffmanState", bytes]]):
    """What comes of each byte in one state: the next state, and text.

    Args:
        number: Of the state in hpack's table.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __missing__(self, byte: int) -> tuple["_HuffmanState", bytes]:
        number, text = self.number, b""
        for half in (byte >> 4, byte & 0xF):
            number, flags, symbol = HUFFMAN_TABLE[16 * number + half]
            if flags & HUFFMAN_FAIL:
                raise hpack.HPACKDecodingError("a text is not in Huffman's code")
            if flags & HUFFMAN_EMIT_SYMBOL:
                text += bytes((symbol,))
        step = self[byte] = _STATES[number], text
        return step


_STATES: Final = [_HuffmanState(number) for number in range(len(HUFFMAN_TABLE) // 16)]
_COMPLETE: Final = frozenset(number for number, flags, _ in HUFFMAN_TABLE if flags & HUFFMAN_COMPLETE)


def expand(data: bytes) -> bytes:
    """Return the text that these bytes stand for.

    Raises:
        HPACKDecodingError: They stand for none.
    """
    state, texts = _STATES[0], []
    for byte in data:
        state, text = state[byte]
        texts.append(text)
    if state.number not in _COMPLETE:
        raise hpack.HPACKDecodingError("a text ends within a character")
    return b"".join(texts)


Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]

FIELD_BYTES: Final = 32
"""What each field counts besides its text (RFC 9113, section 6.5.2)."""

_INDEXED: Final = 0x80
_ADDED: Final = 0x40
_RESIZED: Final = 0x20
_KIND: Final = 0xE0
_HUFFMAN: Final = 0x80
_LONGEST_INTEGER: Final = 5
_MOST_RESIZES: Final = 2
_LONGEST_REMEMBERED: Final = 256
_STATIC: Final = ((b"", b""), *HeaderTable.STATIC_TABLE)
_STATIC_LENGTH: Final = len(_STATIC)


class FieldDecoder:
    """Reads the fields that one client sends, in the order in which it does: they refer to those before them.

    Args:
        longest: How long all of a request may be, as section 6.5.2 of RFC 9113 counts; what is longer ends the connection.
        most: The fields that a block may have; more end the connection, and are not read. A few too many are answered.

    Attributes:
        changes: How often its table was changed by what was read. A block means the same as long as it is not.
    """

    __slots__ = ("_added", "_longest", "_most", "_table", "changes")

    def __init__(self, longest: int, most: int = 2 * MOST_FIELDS) -> None:
        self._longest = longest
        self._most = most
        self._table = HeaderTable()
        self._added = self._table.dynamic_entries  # the last one first
        self.changes = 0

    def decode(self, block: bytes) -> tuple[Fields, int]:
        """Read a block of fields, and return them with how long they are.

        Raises:
            ConnectionFault: It is none: from now on the two sides would disagree about what fields mean.
        """
        try:
            return self._decode(block)
        except (IndexError, hpack.HPACKError) as fault:
            raise ConnectionFault(
                f"fields that cannot be read: {fault}", ErrorCode.COMPRESSION_ERROR
            ) from fault

    def _decode(self, block: bytes) -> tuple[Fields, int]:
        fields: list[tuple[bytes, bytes]] = []
        at, end, size, longest, most = 0, len(block), 0, self._longest, self._most
        if block and block[0] & _KIND == _RESIZED:
            at = self._resize(block)
        while at < end:
            first = block[at]
            if first & _INDEXED:
                index, at = (first & 0x7F, at + 1) if first < 0xFF else _read_integer(block, at, 0x7F)
                field = self._find(index)
            elif first & _ADDED:
                field, at = self._read_literal(block, at, 0x3F)
                self._table.add(*field)
                self.changes += 1
            elif first & _RESIZED:
                raise hpack.HPACKDecodingError("a table is resized after a field, or too often")
            else:
                field, at = self._read_literal(block, at, 0x0F)
            size += FIELD_BYTES + len(field[0]) + len(field[1])
            if size > longest:
                raise AbuseFault(f"it sent fields that are longer than {longest} bytes")
            if len(fields) == most:
                raise AbuseFault(f"it sent more than {most} fields in one block")
            fields.append(field)
        return tuple(fields), size

    def _find(self, index: int) -> tuple[bytes, bytes]:
        if index >= _STATIC_LENGTH:
            return self._added[index - _STATIC_LENGTH]
        if not index:
            raise hpack.InvalidTableIndexError("no table has an entry 0")
        return _STATIC[index]

    def _read_literal(self, block: bytes, at: int, mask: int) -> tuple[tuple[bytes, bytes], int]:
        """Read a field whose value is there, and its name or where that is; returns it, and where the next one begins."""
        index, at = _read_integer(block, at, mask)
        if index:
            name = self._find(index)[0]
        else:
            name, at = _read_text(block, at)
        value, at = _read_text(block, at)
        return (name, value), at

    def _resize(self, block: bytes) -> int:
        """Change how much room the table has, as a client may say before the first field, twice at most (section 4.2)."""
        at = 0
        for _ in range(_MOST_RESIZES):
            if block[at : at + 1] and block[at] & _KIND == _RESIZED:
                size, at = _read_integer(block, at, 0x1F)
                if size > HeaderTable.DEFAULT_SIZE:
                    raise hpack.InvalidTableSizeError("a table that is larger than was allowed")
                self._table.maxsize = size
                self.changes += 1
        return at


def _read_integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Read a number that begins in the low bits of a byte (RFC 7541, section 5.1); returns it, and where what follows begins."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    for shift in range(0, 7 * _LONGEST_INTEGER, 7):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise hpack.HPACKDecodingError("a number that is too long")


def _read_text(block: bytes, at: int) -> tuple[bytes, int]:
    """Read a text with its length (RFC 7541, section 5.2); returns it, and where what follows begins."""
    coding = block[at] & _HUFFMAN
    size, start = _read_integer(block, at, 0x7F)
    end = start + size
    if end > len(block):
        raise hpack.HPACKDecodingError("a text that is longer than its block")
    text = block[start:end]
    if coding:
        text = _expand(text) if size <= _LONGEST_REMEMBERED else expand(text)
    return text, end


_expand = functools.lru_cache(maxsize=1024)(expand)
