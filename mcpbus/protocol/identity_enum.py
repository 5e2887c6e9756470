"""The base of enumerations that key the bus's tables."""

import enum


class IdentityEnum(enum.Enum):
    """An enumeration whose members hash by identity, as they compare.

    `enum.Enum` hashes the member's name in Python code, which the look-ups of a single request do twenty times.
    """

    __hash__ = object.__hash__
