"""What the head of a modern POST says of its body: nearly always to the letter, and the same from one request to the next."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mcpbus.protocol.revisions import REVISIONS, Revision, modern

VERSION_HEADER: Final = b"mcp-protocol-version"
METHOD_HEADER: Final = b"mcp-method"
NAME_HEADER: Final = b"mcp-name"

Values = bytes | tuple[bytes, ...]
"""What a field says: its value, or all of its values if it came several times."""

_MODERN: Final[Mapping[Values | None, Revision]] = {
    name.encode(): revision for name, revision in REVISIONS.items() if modern(name)
}
_LITERAL: Final = re.compile(rb"(?!=\?)(?:[!-~](?:[ -~]*[!-~])?)?")
"""What stands in its header as it is: nothing in it would have to be read first, and no blank around it is the header's own."""


class MirroredFields(msgspec.Struct, frozen=True, gc=False):
    """What a head says to the letter of a body whose revision has that.

    Attributes:
        revision: Of the version that it names.
        method: The method.
        name: The name that belongs to the method; None if it says none.
    """

    revision: Revision
    method: str
    name: str | None


def read_announcement(raw: Callable[[bytes], Values | None]) -> MirroredFields | None:
    """Read the fields that repeat what the body says; None if they are not there, or not to be taken literally.

    Args:
        raw: See `mcpbus.protocol.http.headers.Headers`.
    """
    revision = _MODERN.get(raw(VERSION_HEADER))
    if revision is None:
        return None
    method, name = raw(METHOD_HEADER), raw(NAME_HEADER)
    if not isinstance(method, bytes) or isinstance(name, tuple):
        return None
    if not _LITERAL.fullmatch(method) or not _LITERAL.fullmatch(name or b""):
        return None
    return MirroredFields(revision, method.decode(), None if name is None else name.decode())
