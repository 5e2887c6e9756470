"""How long the head of a request may be, how many heads are remembered, and the characters of field names and values (RFC 9110, section 5)."""

from typing import Final

from mcpbus.protocol.http.head_validation import JUDGED

LONGEST_LINE: Final = 8 * 1024
"""Bytes of a request line; what is longer is refused with 414."""

MOST_FIELDS: Final = 128
"""Header fields of one request; more are refused with 431."""

MOST_DIGITS: Final = 18
"""Digits of how long a body is."""

MOST_ALIKE: Final = 512
"""How many are remembered without what they alone say: the tools of a server are named in them."""

LOOKED_AT: Final = JUDGED | {
    b"transfer-encoding",
    b"connection",
    b"upgrade",
    b"expect",
    b"mcp-method",
    b"mcp-name",
}
"""The fields by which a head is told from others. Besides what is judged: by whom a connection goes on, and which tool is called,
which tells how long it may take.
"""


LOWER_TOKEN: Final = rb"0-9a-z!#$%&'*+.^_`|~-"
"""Of a name in lower case."""
TOKEN: Final = b"A-Z" + LOWER_TOKEN
"""Of a name as it is spelled, or of a method."""
TEXT: Final = rb"\t -~\x80-\xff"
"""Of a value."""
