"""Bearer tokens in HTTP: how a client brings one, and how it is told what is wrong (RFC 6750, RFC 9110 section 11, RFC 9728 section 5.1)."""

import re
import string
from collections.abc import Iterable
from typing import Final

import msgspec

LONGEST_TOKEN: Final = 16 * 1024
"""Bytes of a token that is looked at; a longer one is no good, whatever it says."""

# Of b64token of RFC 6750, section 2.1, before the equals signs at its end.
_TOKEN_BYTES: Final = (string.ascii_letters + string.digits + "-._~+/").encode()
_SCHEME: Final = re.compile(r"bearer(?![!#$%&'*+.^_`|~0-9a-z-])", re.IGNORECASE)
# What may stand in error_description is all but this (RFC 6750, section 3).
_UNSAID: Final = re.compile(r"[^ !#-\[\]-~]")


class NewToken(msgspec.Struct, frozen=True):
    """A bearer token that was not seen before: it takes some work, or a question to its issuer, to tell whose it is.

    Attributes:
        token: The token.
        digest: Of the field that has brought it.
    """

    token: str
    digest: bytes

    def __repr__(self) -> str:
        return "<NewToken>"


class MalformedAuthorizationError(Exception):
    """The field Authorization holds no token although it says Bearer."""


def read_token(authorization: bytes) -> str | None:
    """Return the bearer token that a field Authorization brings; None if it brings something of another kind.

    Raises:
        MalformedAuthorizationError: What it brings cannot be read.
    """
    credentials = authorization.strip(b" \t")
    scheme, _, token = credentials.partition(b" ")
    token = token.lstrip(b" ")
    if scheme.lower() == b"bearer" and _is_token(token):
        return token.decode()
    if _SCHEME.match(credentials.decode("latin-1")):
        raise MalformedAuthorizationError("the Authorization header holds no token that can be read")
    return None


def _is_token(text: bytes) -> bool:
    text = text.rstrip(b"=")
    # A regular expression takes some times as long.
    return bool(text) and not text.translate(None, _TOKEN_BYTES)


def challenge(
    metadata_url: str, scopes: Iterable[str] = (), error: str | None = None, description: str | None = None
) -> str:
    """Return the value of WWW-Authenticate.

    Args:
        metadata_url: Where the client finds out who issues tokens.
        scopes: All that the operation needs.
        error: A code of RFC 6750, section 3.1; none for who has brought no token.
        description: The same for people.
    """
    parameters = {
        "error": error,
        "error_description": description,
        "scope": " ".join(scopes) or None,
        "resource_metadata": metadata_url,
    }
    if description is not None:
        parameters["error_description"] = _UNSAID.sub("?", description)
    return "Bearer " + ", ".join(
        f"{name}={_quote(value)}" for name, value in parameters.items() if value is not None
    )


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
