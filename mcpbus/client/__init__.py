"""Clients of MCP servers, whoever wrote them: over Streamable HTTP, and of programs over their standard input and output."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpbus.client.client import Client, ServerDescription
    from mcpbus.client.errors import ClientError, Disconnected, MalformedAnswerError, StatusError
    from mcpbus.client.http import connect_http
    from mcpbus.client.pending import Listen, OnNotification
    from mcpbus.client.process import connect_process
    from mcpbus.client.server_questions import OnQuestion
else:
    _PLACES = {
        "Client": "client",
        "ClientError": "errors",
        "Disconnected": "errors",
        "Listen": "pending",
        "MalformedAnswerError": "errors",
        "OnNotification": "pending",
        "OnQuestion": "server_questions",
        "ServerDescription": "client",
        "StatusError": "errors",
        "connect_http": "http",
        "connect_process": "process",
    }
    """Where each name is. It is imported when it is asked for: HTTP takes a library that not everybody has."""

    def __getattr__(name: str) -> Any:
        """Import what is asked for."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        """Name all of it, for whoever completes what is typed."""
        return sorted({*globals(), *_PLACES})


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
