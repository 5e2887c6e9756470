"""The base of enumerations that key the bus's tables.

The eight severities of RFC 5424, as MCP names them (rule G-2).
"""

import enum
from typing import TYPE_CHECKING, NoReturn


class IdentityEnum(enum.Enum):
    """An enumeration whose members hash by identity, as they compare.

    `enum.Enum` hashes the member's name in Python code, which the look-ups of a single request do twenty times.
    """

    if not TYPE_CHECKING:  # to checkers it is the `__hash__` that they know
        __hash__ = object.__hash__


class LogLevel(IdentityEnum):
    """A severity, ordered: `LogLevel.DEBUG < LogLevel.EMERGENCY`.

    No StrEnum, whose order would be that of the alphabet.
    """

    DEBUG = "debug"
    INFO = "info"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    ALERT = "alert"
    EMERGENCY = "emergency"

    severity: int
    """0 for debug up to 7 for emergency (RFC 5424 counts the other way)."""

    def __init__(self, _value: object) -> None:
        self.severity = len(type(self).__members__)

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        names = ", ".join(level.value for level in cls)
        raise ValueError(f"{value!r} is not a log level; expected one of {names}")

    def __lt__(self, other: "LogLevel") -> bool:
        return self.severity < other.severity

    def __le__(self, other: "LogLevel") -> bool:
        return self.severity <= other.severity

    def __gt__(self, other: "LogLevel") -> bool:
        return self.severity > other.severity

    def __ge__(self, other: "LogLevel") -> bool:
        return self.severity >= other.severity
