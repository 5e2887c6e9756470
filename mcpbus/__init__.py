"""An MCP server runtime for trio whose inside is a message bus."""

from mcpbus.authentication import Unauthorized
from mcpbus.bus import Bus, Statistics
from mcpbus.context import Client, Context, SyncContext
from mcpbus.fate import DELIVERED, Broadcast, Fate, Place, Reason, Receipt, Verdict
from mcpbus.features import (
    Audio,
    Completion,
    File,
    Image,
    Invocation,
    RegistrationError,
    ResourceNotFoundError,
    ToolError,
    ToolResult,
)
from mcpbus.options import Limits
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.levels import LogLevel
from mcpbus.server import Server
from mcpbus.serving import ServeOptions
from mcpbus.session import Session
from mcpbus.transport.gate import HttpOptions

__all__ = [
    "DELIVERED",
    "Audio",
    "Broadcast",
    "Bus",
    "Client",
    "Completion",
    "Context",
    "Fate",
    "File",
    "HttpOptions",
    "Image",
    "Invocation",
    "Limits",
    "LogLevel",
    "Place",
    "ProtocolError",
    "Reason",
    "Receipt",
    "RegistrationError",
    "ResourceNotFoundError",
    "ServeOptions",
    "Server",
    "Session",
    "Statistics",
    "SyncContext",
    "ToolError",
    "ToolResult",
    "Unauthorized",
    "Verdict",
]
