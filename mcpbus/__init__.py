"""An MCP server runtime for trio whose inside is a message bus."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpbus.asking import (
        Accepted,
        AnswerTimeoutError,
        AskError,
        Cancelled,
        CannotAskError,
        ClientRefusedError,
        Declined,
        Elicit,
        ElicitUrl,
        InputRequired,
        InvalidAnswerError,
        ListRoots,
        Root,
        Sample,
        Sampled,
        Titles,
        ToolUse,
        ToolUseResult,
    )
    from mcpbus.bus import Bus
    from mcpbus.client.client import Client
    from mcpbus.core.client_notification import ClientNotification
    from mcpbus.core.context import ClientInfo, Context
    from mcpbus.core.limits import Limits
    from mcpbus.core.receipt import DELIVERED, STORED, Broadcast, Fate, Place, Receipt, Verdict
    from mcpbus.core.remote_session import RemoteSession
    from mcpbus.core.session import Session
    from mcpbus.core.statistics import Statistics
    from mcpbus.core.sync_bus import SyncBus
    from mcpbus.core.sync_context import SyncContext
    from mcpbus.dispatch.runner import CallNext, Invocation, Middleware
    from mcpbus.features.completion import Completion
    from mcpbus.features.content import Audio, File, Image, PromptMessage, ToolResult
    from mcpbus.features.depends import Depends
    from mcpbus.features.errors import RegistrationError, ResourceNotFoundError, ToolError
    from mcpbus.features.tool import Tool, tool
    from mcpbus.protocol.errors import ProtocolError
    from mcpbus.protocol.http.authentication import Unauthorized
    from mcpbus.protocol.http.messages import Head
    from mcpbus.protocol.http.origin import HttpOptions
    from mcpbus.protocol.levels import LogLevel
    from mcpbus.protocol.messages import (
        Annotations,
        AudioContent,
        BlobResourceContents,
        ContentBlock,
        EmbeddedResource,
        Icon,
        ImageContent,
        ResourceLink,
        TextContent,
        TextResourceContents,
        ToolAnnotations,
    )
    from mcpbus.protocol.routes import Reason
    from mcpbus.server import Server
    from mcpbus.serving.options import ServeOptions
    from mcpbus.serving.signals import shutdown_on_signals
else:
    _NAMES = {
        "asking": (
            "Accepted",
            "AnswerTimeoutError",
            "AskError",
            "Cancelled",
            "CannotAskError",
            "ClientRefusedError",
            "Declined",
            "Elicit",
            "ElicitUrl",
            "InputRequired",
            "InvalidAnswerError",
            "ListRoots",
            "Root",
            "Sample",
            "Sampled",
            "Titles",
            "ToolUse",
            "ToolUseResult",
        ),
        "bus": ("Bus",),
        "client.client": ("Client",),
        "core.client_notification": ("ClientNotification",),
        "core.context": ("ClientInfo", "Context"),
        "core.limits": ("Limits",),
        "core.receipt": ("DELIVERED", "STORED", "Broadcast", "Fate", "Place", "Receipt", "Verdict"),
        "core.remote_session": ("RemoteSession",),
        "core.session": ("Session",),
        "core.statistics": ("Statistics",),
        "core.sync_bus": ("SyncBus",),
        "core.sync_context": ("SyncContext",),
        "dispatch.runner": ("CallNext", "Invocation", "Middleware"),
        "features.completion": ("Completion",),
        "features.content": ("Audio", "File", "Image", "PromptMessage", "ToolResult"),
        "features.depends": ("Depends",),
        "features.errors": ("RegistrationError", "ResourceNotFoundError", "ToolError"),
        "features.tool": ("Tool", "tool"),
        "protocol.errors": ("ProtocolError",),
        "protocol.http.authentication": ("Unauthorized",),
        "protocol.http.messages": ("Head",),
        "protocol.http.origin": ("HttpOptions",),
        "protocol.levels": ("LogLevel",),
        "protocol.messages": (
            "Annotations",
            "AudioContent",
            "BlobResourceContents",
            "ContentBlock",
            "EmbeddedResource",
            "Icon",
            "ImageContent",
            "ResourceLink",
            "TextContent",
            "TextResourceContents",
            "ToolAnnotations",
        ),
        "protocol.routes": ("Reason",),
        "server": ("Server",),
        "serving.options": ("ServeOptions",),
        "serving.signals": ("shutdown_on_signals",),
    }
    """Where each name is. It is imported when it is asked for: clients have no use for servers, nor the command line for either at once."""
    _PLACES = {name: place for place, names in _NAMES.items() for name in names}
    _PARTS = {place.partition(".")[0] for place in _NAMES}
    """Which are attributes of the package, as for who checks types: `mcpbus.asking` needs no import of its own."""

    def __getattr__(name: str) -> Any:
        """Import what is asked for."""
        if name in _PARTS:
            return import_module(f"{__name__}.{name}")
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
        return found

    def __dir__() -> list[str]:
        """Name all of it, for whoever completes what is typed."""
        return sorted({*globals(), *_PLACES})


__version__ = "0.1.0"

__all__ = [
    "DELIVERED",
    "STORED",
    "Accepted",
    "Annotations",
    "AnswerTimeoutError",
    "AskError",
    "Audio",
    "AudioContent",
    "BlobResourceContents",
    "Broadcast",
    "Bus",
    "CallNext",
    "Cancelled",
    "CannotAskError",
    "Client",
    "ClientInfo",
    "ClientNotification",
    "ClientRefusedError",
    "Completion",
    "ContentBlock",
    "Context",
    "Declined",
    "Depends",
    "Elicit",
    "ElicitUrl",
    "EmbeddedResource",
    "Fate",
    "File",
    "Head",
    "HttpOptions",
    "Icon",
    "Image",
    "ImageContent",
    "InputRequired",
    "InvalidAnswerError",
    "Invocation",
    "Limits",
    "ListRoots",
    "LogLevel",
    "Middleware",
    "Place",
    "PromptMessage",
    "ProtocolError",
    "Reason",
    "Receipt",
    "RegistrationError",
    "RemoteSession",
    "ResourceLink",
    "ResourceNotFoundError",
    "Root",
    "Sample",
    "Sampled",
    "ServeOptions",
    "Server",
    "Session",
    "Statistics",
    "SyncBus",
    "SyncContext",
    "TextContent",
    "TextResourceContents",
    "Titles",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "ToolUseResult",
    "Unauthorized",
    "Verdict",
    "__version__",
    "shutdown_on_signals",
    "tool",
]
