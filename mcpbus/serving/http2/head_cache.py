"""The heads of all requests over HTTP/2, of which what comes again and again is read once.

As over HTTP/1.1 a head is cut in two, see `mcpbus.serving.http1.head_cache`: the fields by which it is judged are few, and read as a whole
head; of the others it is enough to know that each is well-formed.
"""

import functools
from typing import Final

from mcpbus.protocol.bounded_cache import LONGEST_REMEMBERED
from mcpbus.protocol.recurring_cache import LONGEST_RECALLED, MOST_RECALLED, RecurringCache
from mcpbus.serving.head_limits import LOOKED_AT, MOST_ALIKE, MOST_FIELDS
from mcpbus.serving.http2.head import (
    Http2RequestHead,
    check_field,
    join_cookies,
    read_head,
    read_length,
    read_refused,
)
from mcpbus.serving.http2.hpack_decoder import FieldDecoder, Fields
from mcpbus.serving.request_error import RequestError

_LENGTH: Final = b"content-length"
_COOKIE: Final = b"cookie"
_LOOKED_AT: Final = (LOOKED_AT - {_LENGTH}) | {b":method", b":scheme", b":authority", b":path", b":protocol"}
_MOST_BLOCKS: Final = 16
_FREE_FIELDS: Final = 32
_FREE_BYTES: Final = 8 * 1024
"""Fields of a head, and bytes that its references stand for, without a cost: as many as a request has that came through proxies."""
_FIELD_COST: Final = 1 / 8
_BYTE_COST: Final = 1 / 12288
"""The price of each one more, for the token bucket. A ping has the price 1."""
_LONGEST_BLOCK: Final = 128
"""How many blocks one connection remembers, and how long one may be: what comes again refers to the table, and is short."""


class Http2HeadCache:
    """Reads heads, and remembers those that come again and are not long.

    They are compared by all of their fields, or by all that are looked at, so one that is remembered is read as it would be anew.

    Args:
        longest: How many bytes a head may be.

    Attributes:
        longest: The same.
    """

    __slots__ = ("_alike", "_known", "longest")

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._alike = functools.lru_cache(maxsize=MOST_ALIKE)(read_head)
        self._known = RecurringCache[Fields, Http2RequestHead](MOST_RECALLED)

    def read(self, fields: Fields, size: int) -> Http2RequestHead:
        """Read a head, which is as long.

        Raises:
            Malformed: It is none.
        """
        fault = self._find_excess(fields, size)
        if fault is not None:
            return read_refused(fields, fault)
        head = self._known.get(fields)
        if head is None:
            head = self._read_like_others(fields) or read_head(fields)
            if size <= LONGEST_RECALLED:
                self._known.keep(fields, head)
        return head

    def _find_excess(self, fields: Fields, size: int) -> RequestError | None:
        if size > self.longest:
            return RequestError(431, f"the head is longer than {self.longest} bytes", "max_head_bytes")
        if len(fields) > MOST_FIELDS:
            return RequestError(431, f"the head has more than {MOST_FIELDS} fields")
        return None

    def _read_like_others(self, fields: Fields) -> Http2RequestHead | None:
        """Read a head by what is known of others that are like it; None if it is to be looked at as a whole."""
        plain: list[tuple[bytes, bytes]] = []
        apart: list[tuple[bytes, bytes]] = []
        length: bytes | None = None
        size = 0
        for field in fields:
            name, value = field
            if name in _LOOKED_AT:
                if apart and name[:1] == b":":
                    return None  # it comes late
                plain.append(field)
                size += len(name) + len(value)
                continue
            if name == _LENGTH:
                if length is not None:
                    return None
                length = value
            else:
                check_field(name, value)
            apart.append(field)
        if size > LONGEST_REMEMBERED:
            return None
        known = self._alike(tuple(plain))
        if not apart or known.fault is not None:
            return None if apart else known
        head = known.judged.plus(_FieldsApart(apart))
        return Http2RequestHead(
            judged=head,
            length=read_length(length),
            expects=known.expects,
            leaves=known.leaves,
            target=known.target,
            plain=known,
        )


class _FieldsApart:
    """The fields of a head that are not looked at before one is asked for; see `mcpbus.protocol.http.headers.LateFields`."""

    __slots__ = ("_fields",)

    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        self._fields = fields

    def find(self, _name: bytes) -> None:
        """See `LateFields.find`: they are apart already, and only to be joined."""

    def all(self) -> list[tuple[bytes, bytes]]:
        """See `LateFields.all`. A cookie is one field again."""
        fields = self._fields
        cookies = [value for name, value in fields if name == _COOKIE]
        if len(cookies) < 2:
            return fields
        return [*(field for field in fields if field[0] != _COOKIE), (_COOKIE, join_cookies(cookies))]


class HeadReader:
    """Reads the heads that come over one connection, and remembers the blocks that came last, for as long as they mean the same.

    Args:
        heads: Reads the heads of all connections.

    Attributes:
        cost: The price of the last block for its client's token bucket; 0 for a block that most clients send.
    """

    __slots__ = ("_decoder", "_heads", "_known", "cost")

    def __init__(self, heads: Http2HeadCache) -> None:
        self._heads = heads
        # A little too much is answered, and far too much is not read.
        self._decoder = FieldDecoder(2 * heads.longest)
        self.cost = 0.0
        self._known: dict[bytes, Http2RequestHead] = {}

    def read(self, block: bytes) -> Http2RequestHead:
        """Read a head.

        Raises:
            Malformed: It is none.
            ConnectionFault: Its fields cannot be read, or are far too many.
        """
        head = self._known.get(block)
        if head is not None:
            self.cost = 0.0
            return head
        changes = self._decoder.changes
        fields, size = self._decode(block)
        head = self._heads.read(fields, size)
        # A short block may stand for a long head, by what it refers to.
        if len(block) <= _LONGEST_BLOCK and size <= LONGEST_RECALLED and self._decoder.changes == changes:
            if len(self._known) == _MOST_BLOCKS:
                self._known.clear()
            self._known[block] = head
        return head

    def decode(self, block: bytes) -> Fields:
        """Read a block whose fields are no head, or of a request that is not served.

        Raises:
            ConnectionFault: They cannot be read, or are far too many.
        """
        return self._decode(block)[0]

    def _decode(self, block: bytes) -> tuple[Fields, int]:
        decoder = self._decoder
        changes = decoder.changes
        fields, size = decoder.decode(block)
        if decoder.changes != changes:
            self._known.clear()
        # A reference of one byte stands for a field of any length, which takes time to be judged all the same.
        many, much = len(fields) - _FREE_FIELDS, size - len(block) - _FREE_BYTES
        self.cost = max(0, many) * _FIELD_COST + max(0, much) * _BYTE_COST
        return fields, size
