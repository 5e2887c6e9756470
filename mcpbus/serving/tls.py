"""How connections are encrypted."""

import ssl
from typing import Final

from mcpbus.serving.errors import CannotListenError
from mcpbus.serving.options import ServeOptions

_PROTOCOLS: Final = ["h2", "http/1.1"]
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2, those that HTTP/2 admits (RFC 9113, appendix A)."""


def make_context(options: ServeOptions) -> ssl.SSLContext | None:
    """Return how connections are encrypted; None if they are not.

    Raises:
        CannotListenError: The certificate cannot be used.
    """
    if options.certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(_PROTOCOLS)
    try:
        context.load_cert_chain(options.certfile, options.keyfile)
    except OSError as error:
        raise CannotListenError(
            f"cannot use the certificate {options.certfile} with the key {options.keyfile}: {error}"
        ) from error
    return context
