"""What is used of coredis, the library that speaks to Redis and Valkey, if that is installed."""

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
