"""The base of enumerations that key the bus's tables."""

import enum
from typing import TYPE_CHECKING


class IdentityEnum(enum.Enum):
    """An enumeration whose members hash by identity, as they compare.

    `enum.Enum` hashes the member's name in Python code, which the look-ups of a single request do twenty times.
    """

    if not TYPE_CHECKING:  # to checkers it is the `__hash__` that they know
        __hash__ = object.__hash__
