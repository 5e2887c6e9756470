"""Of which characters the names and the values of header fields are, to be put into a class of a regular expression (RFC 9110, section 5)."""

from typing import Final

LOWER_TOKEN: Final = rb"0-9a-z!#$%&'*+.^_`|~-"
"""Of a name in lower case."""
TOKEN: Final = b"A-Z" + LOWER_TOKEN
"""Of a name as it is spelled, or of a method."""
TEXT: Final = rb"\t -~\x80-\xff"
"""Of a value."""
