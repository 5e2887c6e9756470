"""How middleware refuses a call."""

from mcpbus.dispatch.runner import Invocation
from mcpbus.features.errors import ToolError
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError


def refusal(invocation: Invocation, why: str) -> ToolError | ProtocolError:
    """Return what to raise: the model reads why a tool was not called, and the client why anything else was not."""
    return ToolError(why) if invocation.tool is not None else ProtocolError(INTERNAL_ERROR, why)
