"""How connections are encrypted."""

import ssl
from pathlib import Path
from typing import Final

from mcpbus.serving.errors import CannotListenError
from mcpbus.serving.options import ServeOptions

_PROTOCOLS: Final = ["h2", "http/1.1"]
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2, those that HTTP/2 admits (RFC 9113, appendix A)."""

_CERTIFICATE: Final = b"CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_EXAMPLES: Final = {
    _CERTIFICATE: "-----BEGIN CERTIFICATE-----",
    _KEY: "-----BEGIN PRIVATE KEY-----",
}


def make_ssl_context(options: ServeOptions) -> ssl.SSLContext | None:
    """Return how connections are encrypted; None if they are not.

    Raises:
        CannotListenError: A file cannot be used.
    """
    if options.certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client of TLS 1.2 could ask for a handshake again and again, each of which takes a millisecond.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(_PROTOCOLS)
    certfile, keyfile = Path(options.certfile), Path(options.keyfile or options.certfile)
    try:
        context.load_cert_chain(certfile, keyfile, password=_forbid_password)
    except (OSError, _PasswordNeededError) as error:
        raise CannotListenError(_explain(certfile, keyfile, error)) from error
    if options.ca_certs is not None:
        _require_certificates(context, Path(options.ca_certs))
    return context


def _require_certificates(context: ssl.SSLContext, file: Path) -> None:
    """Require a certificate of one of these authorities from each client."""
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise CannotListenError(
            f"there is no certificate of an authority in {file}: write it in PEM, with a line such as {_EXAMPLES[_CERTIFICATE]}"
        ) from error
    except OSError as error:
        raise CannotListenError(
            f"cannot read the certificates of authorities {file}: {error.strerror or error}"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED


class _PasswordNeededError(Exception):
    """A key is encrypted; OpenSSL would ask for the password on the terminal, and wait."""


def _forbid_password() -> str:
    raise _PasswordNeededError


def _explain(certfile: Path, keyfile: Path, error: Exception) -> str:
    """Say which file is not as it must be, and what is wrong with it: OpenSSL's own words are about its code."""
    for path, mark, words in ((certfile, _CERTIFICATE, "certificate"), (keyfile, _KEY, "private key")):
        try:
            text = path.read_bytes()
        except OSError as unreadable:
            return f"cannot read the {words} {path}: {unreadable.strerror or unreadable}"
        if mark not in text:
            return f"there is no {words} in {path}: it is to be in PEM, text with a line such as {_EXAMPLES[mark]}"
    if isinstance(error, _PasswordNeededError):
        return (
            f"the private key in {keyfile} is encrypted, and nobody can be asked for its password: write it to a file without one, "
            f"with openssl pkey -in {keyfile} -out FILE"
        )
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return f"the private key in {keyfile} is not that of the first certificate in {certfile}"
    return f"cannot use the certificate in {certfile} with the private key in {keyfile}: {error}"
