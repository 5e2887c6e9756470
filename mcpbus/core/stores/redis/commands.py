"""The commands that Redis or Valkey gets, and the errors that it answers with.

coredis speaks to Redis and Valkey, if it is installed. This module has the part of it that mcpbus uses.
"""

import hashlib
from functools import cached_property
from typing import TypeAlias

import attrs

Value: TypeAlias = bytes | str | int | float


class RedisError(OSError):
    """Redis did not do what it was asked to; the message says why, in one line."""


class RedisDownError(RedisError):
    """Redis cannot be reached, or not be used. It may have done what it was asked to."""


class RedisRefusalError(RedisError):
    """Redis answered with an error."""


@attrs.frozen
class Script:
    """A script in Lua that Redis runs as one step.

    It may be run twice for one call, where the connection is lost meanwhile, and has to harm nothing then.

    Attributes:
        text: The script.
    """

    text: str

    @cached_property
    def digest(self) -> str:
        """By what Redis knows it, once it has run."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


try:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from coredis.connection import BaseConnection
    from coredis.exceptions import (
        AuthenticationFailureError,
        AuthenticationRequiredError,
        BusyLoadingError,
        NoScriptError,
        ReadOnlyError,
        ResponseError,
        UnknownCommandError,
    )
    from coredis.pool import ConnectionPool
except ImportError as error:
    raise ImportError(
        "Redis and Valkey are spoken to by coredis, which mcpbus itself does without: pip install 'mcpbus-server[cluster]'",
        name=error.name,
    ) from error

__all__ = [
    "AuthenticationFailureError",
    "AuthenticationRequiredError",
    "BaseConnection",
    "BusyLoadingError",
    "ConnectionPool",
    "MemoryObjectReceiveStream",
    "MemoryObjectSendStream",
    "NoScriptError",
    "ReadOnlyError",
    "ResponseError",
    "UnknownCommandError",
]
