"""TLS between a server that is measured and the load: a certificate made for the run, and sockets that encrypt."""

import datetime as dt
import ssl
from functools import cache
from pathlib import Path
from socket import socket

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks.peers.peer import HOST


class _Socket(ssl.SSLSocket):
    """A socket whose `recv` returns all text that was decrypted, because epoll does not report the rest."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        data = super().recv(buflen, flags)
        while self.pending():
            data += super().recv(buflen, flags)
        return data


@cache
def _context(protocol: str) -> ssl.SSLContext:
    """Return the context of the load. It verifies nothing: the load measures its own server on the same machine."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    context.sslsocket_class = _Socket
    return context


def encrypt(sock: socket, protocol: str) -> socket:
    """Return a connected socket after the handshake.

    Args:
        sock: The socket; it has become unusable by itself.
        protocol: The name of the protocol (ALPN): "h2" or "http/1.1".
    """
    return _context(protocol).wrap_socket(sock, server_hostname=HOST)


def make_certificate(folder: Path) -> str:
    """Write a certificate of one day and its P-256 key into one file of a folder, and return the path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    certificate = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
    ).sign(key, hashes.SHA256())
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file = folder / "bench.pem"
    file.write_bytes(
        certificate.public_bytes(encoding)
        + key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    )
    return str(file)
