"""One server for all that a client's file names."""

from mcpbus.gateway.server import gateway

__all__ = ["gateway"]
