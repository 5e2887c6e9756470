"""Tokens for servers that are measured behind them: the load issues them, and the server knows whose key has signed them."""

import time

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc.jwk import ECKey

from mcpbus.auth import ResourceServer
from mcpbus.testing import InMemoryIssuer

BYTES = 1_000
SCOPES = ("bench:call",)
_SEED = 20260728
_LIFETIME = 24 * 3600.0
_PADDING = "." * BYTES


def make_issuer() -> InMemoryIssuer:
    """Return the issuer; it is the same in each process, and asked by no other than its own."""
    issuer = InMemoryIssuer(clock=time.time)
    private = ec.derive_private_key(_SEED, ec.SECP256R1())
    written = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    issuer.keys[:] = [ECKey.import_key(written, {"kid": "bench", "use": "sig"})]
    return issuer


def make_resource_server() -> ResourceServer:
    """Return a resource server that takes its tokens."""
    return make_issuer().protect(scopes=SCOPES)


def make_token(issuer: InMemoryIssuer, user: int) -> str:
    """Return a user's token, of nearly as many bytes as said above: Base64 goes in steps."""
    subject = f"user-{user:06}"
    bare = len(issuer.token(subject, SCOPES, lifetime=_LIFETIME, padding=""))
    padding = _PADDING[: (BYTES - bare) * 3 // 4]
    return issuer.token(subject, SCOPES, lifetime=_LIFETIME, padding=padding)
