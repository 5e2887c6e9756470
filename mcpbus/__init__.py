"""An MCP server runtime for trio whose inside is a message bus."""

from typing import TYPE_CHECKING

from mcpbus.protocol import log_records as _log_records  # noqa: F401 - it makes records of the log safe
from mcpbus.protocol.lazy_names import later

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
    from mcpbus.features.content import Audio, File, Image, PromptMessage, PromptResult, ToolResult
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
    from mcpbus.proxy import Proxy
    from mcpbus.server import Server
    from mcpbus.serving.options import ServeOptions
    from mcpbus.serving.signals import shutdown_on_signals
else:
    # Clients have no use for servers, nor the command line for either at once.
    __getattr__, __dir__ = later(
        __name__,
        {
            "mcpbus.asking": (
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
                "Place",
                "Receipt",
                "Verdict",
            ),
            "mcpbus.core.remote_session": ("RemoteSession",),
            "mcpbus.core.session": ("Session",),
            "mcpbus.core.statistics": ("Statistics",),
            "mcpbus.core.sync_bus": ("SyncBus",),
            "mcpbus.core.sync_context": ("SyncContext",),
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
            "mcpbus.features.depends": ("Depends",),
            "mcpbus.features.errors": ("RegistrationError", "ResourceNotFoundError", "ToolError"),
            "mcpbus.features.tool": ("Tool", "tool"),
            "mcpbus.protocol.errors": ("ProtocolError",),
            "mcpbus.protocol.http.authentication": ("Unauthorized",),
            "mcpbus.protocol.http.messages": ("Head",),
            "mcpbus.protocol.http.origin": ("HttpOptions",),
            "mcpbus.protocol.levels": ("LogLevel",),
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
    "PromptResult",
    "ProtocolError",
    "Proxy",
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
