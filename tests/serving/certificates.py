"""Certificates of an authority that a test makes, and sessions of TLS in memory."""

import datetime as dt
import ssl
from contextlib import suppress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from mcpbus.serving import ServeOptions
from mcpbus.serving.listeners import make_ssl_context
from mcpbus.serving.tls_session import TlsSession


class Authority:
    """An authority that signs certificates.

    Attributes:
        file: The PEM file of its own certificate, for `ca_certs=`.
    """

    def __init__(self, folder, name):
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = self._sign(self._name, self._key, is_authority=True)
        self.file = str(folder / f"{name}.pem")
        (folder / f"{name}.pem").write_bytes(_pem(self._certificate))

    def issue(self, name):
        """Return the PEM file of a certificate for that name, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = self._folder / f"{name}.pem"
        encoded = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(_pem(self._sign(_name(name), key, is_authority=False)) + encoded)
        return str(file)

    def _sign(self, subject, key, *, is_authority):
        now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
        builder = (
            x509.CertificateBuilder(
                self._name, subject, key.public_key(), x509.random_serial_number(), now - day, now + day
            )
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=is_authority,
                    crl_sign=is_authority,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )
        if not is_authority:
            builder = builder.add_extension(
                x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _name(name):
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


class MemoryClient:
    """The client's end of TLS in memory.

    Attributes:
        incoming: What the server has sent.
        outgoing: What the client has to send.
        tls: The client's session.
    """

    def __init__(self, context, session=None):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self.incoming, self.outgoing, server_hostname="localhost", session=session
        )

    def step(self, received=b""):
        """Go on with the handshake, and return what is to be sent."""
        self.incoming.write(received)
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def say(self, text):
        """Return the records of a text."""
        for start in range(0, len(text), 16384):
            self.tls.write(text[start : start + 16384])
        return self.outgoing.read()

    def hear(self, records):
        """Return the text of records."""
        self.incoming.write(records)
        text = b""
        while True:
            try:
                piece = self.tls.read(65536)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                return text
            if not piece:
                return text
            text += piece

    def end(self):
        """Return the announcement of the client's end."""
        with suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()


class Forger:
    """Makes the records of a client of TLS 1.3 by hand, for what Python's `ssl` cannot say (RFC 8446, sections 5.2, 7.2 and 7.3).

    Args:
        keys: The file to which the client's context has logged its secrets. No record was sent since the handshake.
    """

    def __init__(self, keys):
        (line,) = [
            line for line in keys.read_text().splitlines() if line.startswith("CLIENT_TRAFFIC_SECRET_0")
        ]
        self._use(bytes.fromhex(line.split()[2]))

    def _use(self, secret):
        self._secret, self._number = secret, 0
        self._key, self._nonce = self._derive(b"key", 32), self._derive(b"iv", 12)

    def _derive(self, label, size):
        label = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
        return HKDFExpand(hashes.SHA384(), size, info).derive(self._secret)

    def record(self, kind, content):
        """Return a record of that content type."""
        nonce = (int.from_bytes(self._nonce, "big") ^ self._number).to_bytes(12, "big")
        self._number += 1
        head = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2, "big")
        return head + AESGCM(self._key).encrypt(nonce, content + bytes([kind]), head)

    def say(self, text):
        """Return the record of a text."""
        return self.record(23, text)

    def update_key(self, *, requested):
        """Return the message that all later records have a new key, and perhaps that the server's are to have one too."""
        message = self.record(22, b"\x18\0\0\x01" + bytes([requested]))
        self._use(self._derive(b"traffic upd", 48))
        return message


def server_context(file, **options):
    """The context of a server with that certificate."""
    return make_ssl_context(ServeOptions(certfile=file, keyfile=file, **options))


def client_context(file, version=None, certificate=None):
    """The context of a client that trusts that certificate, for one version of TLS, with a certificate of its own."""
    context = ssl.create_default_context(cafile=file)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def joined(server, client):
    """Complete a handshake in memory; returns the server's session and the client."""
    session, ours = TlsSession(server), MemoryClient(client)
    said = ours.step()
    while not session.established or said:
        session.shake_hands(said)
        said = ours.step(session.take_output())
    return session, ours
