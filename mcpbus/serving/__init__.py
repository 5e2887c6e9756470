"""Serving over HTTP/1.1, HTTP/2 and WebSocket; ASGI applications of others with hypercorn, guarded."""

from mcpbus.serving.asgi import AsgiApp, Drainable
from mcpbus.serving.counters import Counters
from mcpbus.serving.errors import CannotListenError, LifespanError, ServingError
from mcpbus.serving.options import ServeOptions
from mcpbus.serving.run import serve
from mcpbus.serving.signals import shutdown_on_signals

__all__ = [
    "AsgiApp",
    "CannotListenError",
    "Counters",
    "Drainable",
    "LifespanError",
    "ServeOptions",
    "ServingError",
    "serve",
    "shutdown_on_signals",
]
