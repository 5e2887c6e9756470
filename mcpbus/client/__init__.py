"""Clients of MCP servers, whoever wrote them: over Streamable HTTP, and of programs over their standard input and output."""

from typing import TYPE_CHECKING

from mcpbus.protocol.lazy_names import later

if TYPE_CHECKING:
    from mcpbus.client.client import Client, ServerDescription
    from mcpbus.client.errors import ClientError, Disconnected, MalformedAnswerError, StatusError
    from mcpbus.client.http import connect_http
    from mcpbus.client.pending import Listen, OnNotification, OnQuestion
    from mcpbus.client.process import connect_process
else:
    # HTTP takes a library that not everybody has.
    __getattr__, __dir__ = later(
        __name__,
        {
            "mcpbus.client.client": ("Client", "ServerDescription"),
            "mcpbus.client.errors": ("ClientError", "Disconnected", "MalformedAnswerError", "StatusError"),
            "mcpbus.client.http": ("connect_http",),
            "mcpbus.client.pending": ("Listen", "OnNotification", "OnQuestion"),
            "mcpbus.client.process": ("connect_process",),
        },
    )

__all__ = [
    "Client",
    "ClientError",
    "Disconnected",
    "Listen",
    "MalformedAnswerError",
    "OnNotification",
    "OnQuestion",
    "ServerDescription",
    "StatusError",
    "connect_http",
    "connect_process",
]
