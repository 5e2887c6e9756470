"""What speaks HTTP for clients: a library that not everybody has."""

try:
    import httpx2
except ImportError as error:
    raise ImportError(
        "a client over HTTP needs httpx2, which mcpbus itself does without: pip install 'mcpbus-server[client]'",
        name=error.name,
    ) from error

__all__ = ["httpx2"]
