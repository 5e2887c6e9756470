"""Signed tokens in their compact form, taken apart before anything of them is believed (RFC 7515, sections 3.1 and 4.1)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mcpbus.auth.verifier import InvalidTokenError


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
