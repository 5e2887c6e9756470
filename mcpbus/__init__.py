"""An MCP server runtime for trio whose inside is a message bus."""

from typing import TYPE_CHECKING

from mcpbus.protocol import log_records as _log_records  # noqa: F401 - it makes records of the log safe
from mcpbus.protocol.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from mcpbus.asking import (
        AcceptedElicitation,
        CancelledElicitation,
        ChoiceTitles,
        DeclinedElicitation,
        Elicit,
        ElicitUrl,
        InputRefusedError,
        InputRequestError,
        InputRequired,
        InputTimeoutError,
        InputUnavailableError,
        InvalidInputError,
        ListRoots,
        Root,
        Sample,
        SamplingResult,
        ToolUse,
        ToolUseResult,
    )
    from mcpbus.bus import Bus
    from mcpbus.client.client import Client
    from mcpbus.core.client_notification import ClientNotification
    from mcpbus.core.context import ClientInfo, Context
    from mcpbus.core.limits import Limits
    from mcpbus.core.receipt import DELIVERED, STORED, Broadcast, Fate, FateKind, Location, Receipt
    from mcpbus.core.sessions.remote import RemoteSession
    from mcpbus.core.sessions.session import Session
    from mcpbus.core.statistics import Statistics
    from mcpbus.core.sync_context import SyncBus, SyncContext
    from mcpbus.dispatch.runner import CallNext, Invocation, Middleware
    from mcpbus.features.completion import Completion
    from mcpbus.features.content import Audio, File, Image, PromptMessage, PromptResult, ToolResult
    from mcpbus.features.dependencies import Depends
    from mcpbus.features.errors import RegistrationError, ResourceNotFoundError, ToolError
    from mcpbus.features.tool import Tool, tool
    from mcpbus.hosted import Hosted, host
    from mcpbus.protocol.enums import LogLevel
    from mcpbus.protocol.errors import ProtocolError
    from mcpbus.protocol.http.authentication import UnauthorizedError
    from mcpbus.protocol.http.messages import RequestHead
    from mcpbus.protocol.http.options import HttpOptions
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
    from mcpbus.proxy import Proxy
    from mcpbus.server import Server
    from mcpbus.serving.options import ServeOptions
    from mcpbus.serving.signals import shutdown_on_signals
else:
    # Clients have no use for servers, nor the command line for either at once.
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "mcpbus.asking": (
                "AcceptedElicitation",
                "InputTimeoutError",
                "InputRequestError",
                "CancelledElicitation",
                "InputUnavailableError",
                "InputRefusedError",
                "DeclinedElicitation",
                "Elicit",
                "ElicitUrl",
                "InputRequired",
                "InvalidInputError",
                "ListRoots",
                "Root",
                "Sample",
                "SamplingResult",
                "ChoiceTitles",
                "ToolUse",
                "ToolUseResult",
            ),
            "mcpbus.bus": ("Bus",),
            "mcpbus.client.client": ("Client",),
            "mcpbus.core.client_notification": ("ClientNotification",),
            "mcpbus.core.context": ("ClientInfo", "Context"),
            "mcpbus.core.limits": ("Limits",),
            "mcpbus.core.receipt": (
                "DELIVERED",
                "STORED",
                "Broadcast",
                "Fate",
                "Location",
                "Receipt",
                "FateKind",
            ),
            "mcpbus.core.sessions.remote": ("RemoteSession",),
            "mcpbus.core.sessions.session": ("Session",),
            "mcpbus.core.statistics": ("Statistics",),
            "mcpbus.core.sync_context": ("SyncBus", "SyncContext"),
            "mcpbus.dispatch.runner": ("CallNext", "Invocation", "Middleware"),
            "mcpbus.features.completion": ("Completion",),
            "mcpbus.features.content": (
                "Audio",
                "File",
                "Image",
                "PromptMessage",
                "PromptResult",
                "ToolResult",
            ),
            "mcpbus.features.dependencies": ("Depends",),
            "mcpbus.features.errors": ("RegistrationError", "ResourceNotFoundError", "ToolError"),
            "mcpbus.features.tool": ("Tool", "tool"),
            "mcpbus.hosted": ("Hosted", "host"),
            "mcpbus.protocol.errors": ("ProtocolError",),
            "mcpbus.protocol.http.authentication": ("UnauthorizedError",),
            "mcpbus.protocol.http.messages": ("RequestHead",),
            "mcpbus.protocol.http.options": ("HttpOptions",),
            "mcpbus.protocol.enums": ("LogLevel",),
            "mcpbus.protocol.messages": (
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
            "mcpbus.protocol.routes": ("Reason",),
            "mcpbus.proxy": ("Proxy",),
            "mcpbus.server": ("Server",),
            "mcpbus.serving.options": ("ServeOptions",),
            "mcpbus.serving.signals": ("shutdown_on_signals",),
        },
    )

__version__ = "0.1.0"

__all__ = [
    "DELIVERED",
    "STORED",
    "AcceptedElicitation",
    "Annotations",
    "Audio",
    "AudioContent",
    "BlobResourceContents",
    "Broadcast",
    "Bus",
    "CallNext",
    "CancelledElicitation",
    "ChoiceTitles",
    "Client",
    "ClientInfo",
    "ClientNotification",
    "Completion",
    "ContentBlock",
    "Context",
    "DeclinedElicitation",
    "Depends",
    "Elicit",
    "ElicitUrl",
    "EmbeddedResource",
    "Fate",
    "FateKind",
    "File",
    "Hosted",
    "HttpOptions",
    "Icon",
    "Image",
    "ImageContent",
    "InputRefusedError",
    "InputRequestError",
    "InputRequired",
    "InputTimeoutError",
    "InputUnavailableError",
    "InvalidInputError",
    "Invocation",
    "Limits",
    "ListRoots",
    "Location",
    "LogLevel",
    "Middleware",
    "PromptMessage",
    "PromptResult",
    "ProtocolError",
    "Proxy",
    "Reason",
    "Receipt",
    "RegistrationError",
    "RemoteSession",
    "RequestHead",
    "ResourceLink",
    "ResourceNotFoundError",
    "Root",
    "Sample",
    "SamplingResult",
    "ServeOptions",
    "Server",
    "Session",
    "Statistics",
    "SyncBus",
    "SyncContext",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "ToolUseResult",
    "UnauthorizedError",
    "__version__",
    "host",
    "shutdown_on_signals",
    "tool",
]
