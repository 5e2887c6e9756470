"""Authorization: a server as the resource server of OAuth 2.1, which lets those in whose tokens were issued for it.

The server issues no tokens, and passes none on. Who does is named, and clients are told::

    from mcpbus import Server
    from mcpbus.auth import JwtVerifier, ResourceServer

    issuer = JwtVerifier("https://id.example.com")
    server = Server("files", auth=ResourceServer("https://mcp.example.com/mcp", issuer, scopes=["files:read"]))
"""

try:
    import joserfc  # noqa: F401 - here, so that there is one sentence
except ImportError as error:
    raise ImportError(
        f"mcpbus.auth needs {error.name}, which mcpbus itself does without: pip install 'mcpbus-server[auth]'",
        name=error.name,
    ) from error

from mcpbus.auth.introspection import IntrospectionVerifier
from mcpbus.auth.jwt import JwtVerifier
from mcpbus.auth.principal import Principal
from mcpbus.auth.resource_server import ResourceServer
from mcpbus.auth.verifiers import (
    AnyTokenVerifier,
    InvalidTokenError,
    StaticTokenVerifier,
    TokenVerifier,
    VerifiedToken,
    VerifierUnavailableError,
)

__all__ = [
    "AnyTokenVerifier",
    "IntrospectionVerifier",
    "InvalidTokenError",
    "JwtVerifier",
    "Principal",
    "ResourceServer",
    "StaticTokenVerifier",
    "TokenVerifier",
    "VerifiedToken",
    "VerifierUnavailableError",
]
