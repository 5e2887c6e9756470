"""The names of attributes, events and instruments.

Those of `mcp` and `gen_ai` are of the semantic conventions of OpenTelemetry for MCP, in which their stability is *Development*: they may
change. They are written here because the package of the conventions marks them as deprecated, since they moved to a repository of their
own. Those of `mcpbus` are this project's.
"""

from typing import Final

# -- attributes of the conventions ---------------------------------------------------------------

METHOD: Final = "mcp.method.name"
REVISION: Final = "mcp.protocol.version"
RESOURCE: Final = "mcp.resource.uri"
SESSION: Final = "mcp.session.id"
REQUEST_ID: Final = "jsonrpc.request.id"
OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
TOOL: Final = "gen_ai.tool.name"
PROMPT: Final = "gen_ai.prompt.name"
ERROR: Final = "error.type"
TOOL_ERROR: Final = "tool_error"
STATUS_CODE: Final = "rpc.response.status_code"
TRANSPORT: Final = "network.transport"
TCP: Final = "tcp"
PIPE: Final = "pipe"
PROTOCOL: Final = "network.protocol.name"
HTTP: Final = "http"
CLIENT: Final = "client.address"

# -- our own -------------------------------------------------------------------------------------

OUTCOME: Final = "mcpbus.outcome"
MESSAGES: Final = "mcpbus.messages"
FATE: Final = "mcpbus.fate"
REASON: Final = "mcpbus.reason"
COUNT: Final = "mcpbus.count"
LINK: Final = "mcpbus.link"
PLACE: Final = "mcpbus.place"
LIMIT: Final = "mcpbus.limit"

NOTIFICATION_EVENT: Final = "mcpbus.notification"
NOTIFICATIONS_EVENT: Final = "mcpbus.notifications"
REPLY_EVENT: Final = "mcpbus.reply"

# -- instruments ---------------------------------------------------------------------------------

OPERATION_DURATION: Final = "mcp.server.operation.duration"
REQUEST_DURATION: Final = "mcp.client.operation.duration"
DELIVERY_DURATION: Final = "mcpbus.delivery.duration"
MESSAGE_COUNT: Final = "mcpbus.messages"
PENDING: Final = "mcpbus.messages.pending"
REQUESTS: Final = "mcpbus.requests"
SESSIONS: Final = "mcpbus.sessions"
LISTENS: Final = "mcpbus.listens"
SUSPENDED: Final = "mcpbus.suspended"
HELD: Final = "mcpbus.held"
LIMITS_REACHED: Final = "mcpbus.limits.reached"
