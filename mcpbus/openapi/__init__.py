"""Tools made from OpenAPI documents: see `mcpbus.Server.from_openapi`."""

from mcpbus.openapi.document import OpenApiError

__all__ = ["OpenApiError"]
