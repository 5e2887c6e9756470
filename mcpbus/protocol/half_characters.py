"""Half of a surrogate pair in JSON, which can write one, as JavaScript does where it cuts an emoji in two. It is no Unicode.

No message that has one can be decoded. So it is mended to learn whose it is.
"""

import re
from typing import Final

_HALF: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
"""Half of a surrogate pair without the other, in JSON without escaped backslashes."""
_MENDED: Final = frozenset("\N{REPLACEMENT CHARACTER}\b")


def replace_lone_surrogates(data: bytes | str) -> tuple[bytes, bytes]:
    """Return a text, and the same with another character for each half of a pair; or itself, if there is none.

    Both are of the same length, and have everything at the same place. Backslashes are lost as well, so that it is good for reading
    where something is, and what is `unchanged`.
    """
    text = data.encode() if isinstance(data, str) else data
    mended, halves = _HALF.subn(rb"\\ufffd", text.replace(rb"\\", rb"\b"))
    return text, mended if halves else text


def unchanged(identity: int | str | None) -> int | str | None:
    """Return the id of a message that was mended, unless it may have been another one."""
    return None if isinstance(identity, str) and not _MENDED.isdisjoint(identity) else identity
