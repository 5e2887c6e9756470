"""Clients of MCP servers, whoever wrote them: over Streamable HTTP, and of programs over their standard input and output."""

from typing import TYPE_CHECKING

from mcpbus.protocol.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from mcpbus.client.client import Client, ServerDescription
    from mcpbus.client.errors import ClientError, DisconnectedError, MalformedAnswerError, StatusError
    from mcpbus.client.http import connect_http
    from mcpbus.client.oauth.authorization_code import OAuth
    from mcpbus.client.oauth.client_credentials import ClientCredentials
    from mcpbus.client.oauth.errors import (
        InsufficientScopeError,
        LoginError,
        LoginNeededError,
        LoginRefusedError,
    )
    from mcpbus.client.oauth.storage import FileTokenStorage, MemoryTokenStorage, TokenStorage
    from mcpbus.client.pending import ChangeSubscription, OnInputRequest, OnNotification
    from mcpbus.client.stdio import connect_process
else:
    # HTTP takes a library that not everybody has.
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "mcpbus.client.client": ("Client", "ServerDescription"),
            "mcpbus.client.errors": (
                "ClientError",
                "DisconnectedError",
                "MalformedAnswerError",
                "StatusError",
            ),
            "mcpbus.client.http": ("connect_http",),
            "mcpbus.client.oauth.errors": (
                "InsufficientScopeError",
                "LoginError",
                "LoginNeededError",
                "LoginRefusedError",
            ),
            "mcpbus.client.oauth.authorization_code": ("OAuth",),
            "mcpbus.client.oauth.client_credentials": ("ClientCredentials",),
            "mcpbus.client.oauth.storage": ("FileTokenStorage", "MemoryTokenStorage", "TokenStorage"),
            "mcpbus.client.pending": ("ChangeSubscription", "OnNotification", "OnInputRequest"),
            "mcpbus.client.stdio": ("connect_process",),
        },
    )

__all__ = [
    "ChangeSubscription",
    "Client",
    "ClientCredentials",
    "ClientError",
    "DisconnectedError",
    "FileTokenStorage",
    "InsufficientScopeError",
    "LoginError",
    "LoginNeededError",
    "LoginRefusedError",
    "MalformedAnswerError",
    "MemoryTokenStorage",
    "OAuth",
    "OnInputRequest",
    "OnNotification",
    "ServerDescription",
    "StatusError",
    "TokenStorage",
    "connect_http",
    "connect_process",
]
