"""Serving over HTTP/1.1, HTTP/2 and WebSocket: mcpbus's own endpoint straight, and other applications through ASGI."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mcpbus.serving.errors import CannotListenError, LifespanError, ServingError
from mcpbus.serving.signals import shutdown_on_signals

if TYPE_CHECKING:
    from mcpbus.serving.asgi import AsgiApp, Drainable
    from mcpbus.serving.counters import Counters
    from mcpbus.serving.options import ServeOptions
    from mcpbus.serving.run import serve

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

_LATER = {
    "AsgiApp": "asgi",
    "Counters": "counters",
    "Drainable": "asgi",
    "ServeOptions": "options",
    "serve": "run",
}


def __getattr__(name: str) -> Any:
    """Import what reads and writes HTTP when it is asked for: a program on stdio has no use for it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
