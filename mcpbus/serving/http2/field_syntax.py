"""What the names and the values of fields may be, whoever sends them (RFC 9113, section 8.2.1)."""

import re
from typing import Final

NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
