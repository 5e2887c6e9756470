"""Why a server that stands for another one cannot."""

from mcpbus.serving.errors import ServingError


class UpstreamError(ServingError):
    """The other server cannot be reached, or what it says is no MCP."""
