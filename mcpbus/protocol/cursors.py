"""Opaque cursors for paginated lists.

A cursor names the *position* after which the next page begins, not an offset: each entry of a list has a number that never changes
and grows from entry to entry (say, the count of registrations when it was added). So what is added or removed between two pages
neither repeats nor hides another entry.
"""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_params

_T = TypeVar("_T")


class _Position(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    list: str
    after: int


_positions = msgspec.json.Decoder(_Position)


class Page(msgspec.Struct, Generic[_T], frozen=True):
    """A part of a list. `next_cursor` is None on the last page."""

    items: Sequence[_T]
    next_cursor: str | None


def encode_cursor(list_name: str, after: int) -> str:
    """The cursor for what follows position `after` of the list."""
    return base64.urlsafe_b64encode(msgspec.json.encode(_Position(list_name, after))).decode().rstrip("=")


def decode_cursor(list_name: str, cursor: str) -> int:
    """The position that a cursor names.

    Args:
        list_name: the list that was asked; a cursor of another list is refused.
        cursor: as the client sent it. The empty string is judged like any other (rule I-2).

    Raises:
        ProtocolError: -32602 (rule I-3).
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        position = _positions.decode(text)
    except (binascii.Error, ValueError):
        raise _invalid(list_name) from None
    if position.list != list_name:
        raise _invalid(list_name)
    return position.after


def _invalid(list_name: str) -> ProtocolError:
    return invalid_params(
        f"not a cursor of {list_name}; pass `nextCursor` of its last page, or none - at `params.cursor`"
    )


def paginate(
    items: Sequence[_T], cursor: str | None, size: int, *, list_name: str, position: Callable[[_T], int]
) -> Page[_T]:
    """Cut one page out of a list.

    Args:
        items: in the order of their positions.
        cursor: from the request; None for the first page.
        size: the most items a page may have.
        list_name: what the cursor belongs to, such as `tools/list`.
        position: the number of an item that never changes.

    Raises:
        ProtocolError: -32602 for a cursor that is not one of this list.
    """
    start = 0 if cursor is None else bisect_right(items, decode_cursor(list_name, cursor), key=position)
    page = items[start : start + size]
    more = start + size < len(items)
    return Page(page, encode_cursor(list_name, position(page[-1])) if more else None)
