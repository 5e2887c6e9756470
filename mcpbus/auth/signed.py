"""Signed tokens in their compact form, taken apart before anything of them is believed (RFC 7515, sections 3.1 and 4.1)."""

from binascii import a2b_base64
from typing import Any, Final

import msgspec

from mcpbus.auth.verifier import InvalidTokenError


class SignatureHeader(msgspec.Struct):
    """What is looked at of the header of a signed token.

    Attributes:
        alg: How it is signed.
        kid: The name of the key with which it is signed.
        crit: What its reader has to know; there is nothing of the kind that is known here.
    """

    alg: str
    kid: str | None = None
    crit: Any = msgspec.UNSET


class SignedToken(msgspec.Struct):
    """A token, whose signature is still to be verified.

    Attributes:
        header: Its header.
        claims: What it says.
        signed: What is signed.
        signature: How.
    """

    header: SignatureHeader
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


_read_header: Final = msgspec.json.Decoder(SignatureHeader).decode
_read_claims: Final = msgspec.json.Decoder(dict[str, Any]).decode
_TO_BASE64: Final = bytes.maketrans(b"-_+/=", b"+/!!!")
"""From the alphabet for URLs to the plain one; what is not in the first is not in the second either."""


def read_signed(token: str) -> SignedToken:
    """Take a token apart.

    Raises:
        InvalidTokenError: It is no signed token.
    """
    whole = token.encode()
    try:
        header, claims, signature = whole.translate(_TO_BASE64).split(b".")
        return SignedToken(
            _read_header(_decode(header)),
            _read_claims(_decode(claims)),
            whole[: whole.rindex(b".")],
            _decode(signature),
        )
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
    return a2b_base64(text + b"==="[: -len(text) % 4], strict_mode=True)
