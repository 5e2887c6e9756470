"""Serving over HTTP/1.1, HTTP/2 and WebSocket: mcpbus's own endpoint straight, and other applications through ASGI."""

from typing import TYPE_CHECKING

from mcpbus.protocol.lazy_exports import lazy_exports
from mcpbus.serving.errors import CannotListenError, LifespanError, ServingError
from mcpbus.serving.signals import shutdown_on_signals

if TYPE_CHECKING:
    from mcpbus.serving.asgi import AsgiApp, Drainable
    from mcpbus.serving.counters import ServerCounters
    from mcpbus.serving.options import ServeOptions
    from mcpbus.serving.run import serve
else:
    # A program on stdio has no use for what reads and writes HTTP.
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "mcpbus.serving.asgi": ("AsgiApp", "Drainable"),
            "mcpbus.serving.counters": ("ServerCounters",),
            "mcpbus.serving.options": ("ServeOptions",),
            "mcpbus.serving.run": ("serve",),
        },
    )

__all__ = [
    "AsgiApp",
    "CannotListenError",
    "Drainable",
    "LifespanError",
    "ServeOptions",
    "ServerCounters",
    "ServingError",
    "serve",
    "shutdown_on_signals",
]
