"""A watch: it shows what an opened server does, and what it did lately."""

from mcpbus.core.request_context import Life
from mcpbus.watch.views import MessageView, RequestView, StackFrame
from mcpbus.watch.watch import Watch

__all__ = ["Life", "MessageView", "RequestView", "StackFrame", "Watch"]
