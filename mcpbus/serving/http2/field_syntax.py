"""What the names and the values of fields may be, whoever sends them (RFC 9113, section 8.2.1)."""

import re
from typing import Final

from mcpbus.serving.field_characters import LOWER_TOKEN, TEXT

NAME: Final = re.compile(rb"[%b]+" % LOWER_TOKEN)
VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[%b]*[!-~\x80-\xff])?)?" % TEXT)
