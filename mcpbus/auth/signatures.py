"""Checks of signatures, each made ready for one key: what the key is, and what it is for, is judged once (RFC 7518, section 3)."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key

Check: TypeAlias = Callable[[bytes, bytes], bool]
"""Tells of what is signed and of its signature whether they go together."""


class Algorithm(Protocol):
    """A way to sign, as joserfc has them."""

    name: str

    def check_key(self, key: Any) -> None:
        """Raise a `JoseError` if a key is not of its kind."""

    def verify(self, msg: bytes, sig: bytes, key: Any) -> bool:
        """Whether a message is signed with a key."""


def make_check(key: Key, algorithm: Algorithm) -> Check | None:
    """Return the check of what is signed with a key; None if the key is not for that, or not for this algorithm."""
    try:
        algorithm.check_key(key)
        public = key.get_op_key("verify")
    except JoseError:
        return None
    if isinstance(key, ECKey) and isinstance(public, EllipticCurvePublicKey):
        return _by_curve(public, ECDSA(algorithm.hash_alg()))  # type: ignore[attr-defined] # those for such keys have one
    return _by_library(key, algorithm)


def _by_curve(key: EllipticCurvePublicKey, how: ECDSA) -> Check:
    """Return the check of two numbers in a row, each as long as the curve has it: joserfc asks everything anew each time."""
    half = (key.key_size + 7) // 8
    verify = key.verify

    def check(signed: bytes, signature: bytes) -> bool:
        if len(signature) != 2 * half:
            return False
        r, s = int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big")
        try:
            verify(encode_dss_signature(r, s), signed, how)
        except (InvalidSignature, ValueError):
            return False
        return True

    return check


def _by_library(key: Key, algorithm: Algorithm) -> Check:
    def check(signed: bytes, signature: bytes) -> bool:
        try:
            return algorithm.verify(signed, signature, key)
        except (JoseError, ValueError, TypeError):
            return False

    return check
