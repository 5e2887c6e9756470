"""AES-256-GCM (RFC 5116) with a key of a secret: what nobody else can have made, or read.

Only what seals something loads this, and with it the library that does it.
"""

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE_BYTES: Final = 12


class Cipher:
    """Seals with one secret, and opens what it has sealed.

    Args:
        secret: The secret.
        purpose: What is sealed for another purpose cannot be opened.
    """

    def __init__(self, secret: bytes, purpose: bytes) -> None:
        self._purpose = purpose
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=purpose).derive(secret))

    def seal(self, data: bytes) -> bytes:
        """Seal it, each time in other bytes."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, self._purpose)

    def open(self, sealed: bytes) -> bytes | None:
        """Open it; None where it was not sealed with this secret, for this purpose."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._purpose)
        except (InvalidTag, ValueError):
            return None
