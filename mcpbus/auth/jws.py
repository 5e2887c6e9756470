"""Signed tokens in their compact form, taken apart before anything of them is believed (RFC 7515, sections 3.1 and 4.1).

Checks of signatures, each made ready for one key: what the key is, and what it is for, is judged once (RFC 7518, section 3).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key

from mcpbus.auth.verifiers import InvalidTokenError


class SignatureHeader(msgspec.Struct):
    """What is looked at of the header of a signed token.

    Attributes:
        alg: How it is signed.
        kid: The name of the key with which it is signed.
        crit: What its reader has to know; there is nothing of the kind that is known here.
        typ: The type of the token, which may be anything.
    """

    alg: str
    kid: str | None = None
    crit: Any = msgspec.UNSET
    typ: Any = None


class SignedToken(msgspec.Struct):
    """A token, whose signature is still to be verified.

    Attributes:
        header: Its header.
        written: The same as it stands in the token.
        claims: What it says.
        signed: What is signed.
        signature: How.
    """

    header: SignatureHeader
    written: bytes
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


_read_header: Final = msgspec.json.Decoder(SignatureHeader).decode
_read_claims: Final = msgspec.json.Decoder(dict[str, Any]).decode
_read_base64: Final = msgspec.json.Decoder(bytes).decode
_TO_BASE64: Final = bytes.maketrans(b'-_+/="\\', b"+/!!!!!")
"""From the alphabet for URLs to the plain one; what is not in the first is not in the second either, and ends no text in JSON."""
_NONE: Final[Mapping[bytes, SignatureHeader]] = MappingProxyType({})


def read_signed(token: str, headers: Mapping[bytes, SignatureHeader] = _NONE) -> SignedToken:
    """Take a token apart.

    Args:
        token: The token.
        headers: Those that were read before, by what stands in a token.

    Raises:
        InvalidTokenError: It is no signed token.
    """
    whole = token.encode()
    try:
        signed, signature = whole.rsplit(b".", 1)
        written, claims = signed.split(b".")
        header = headers.get(written) or _read_header(_decode(written))
        return SignedToken(header, written, _read_claims(_decode(claims)), signed, _decode(signature))
    except ValueError:
        # Header and claims are anybody's JSON, which need not even be objects.
        raise InvalidTokenError("it is not a signed token") from None
    except RecursionError:
        raise InvalidTokenError("it is nested too deeply") from None


def _decode(text: bytes) -> bytes:
    """Decode Base64 without padding, and without anything that is not of its alphabet.

    Raises:
        ValueError: It is something else.
    """
    # As JSON has it: what decodes that is twice as fast as `binascii`, and as strict.
    return _read_base64(b'"%b%b"' % (text.translate(_TO_BASE64), b"==="[: -len(text) % 4]))


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
