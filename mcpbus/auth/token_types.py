"""The types of tokens, and the tables that tell an access token from all else that an issuer signs.

An issuer signs login, logout and security event tokens with the same keys as access tokens, and clients sign proofs. RFC 8725,
section 3.11, and RFC 9068, section 4, tell them apart by the header `typ`. Older issuers write ``JWT`` or nothing there, and use a
claim.
"""

from collections.abc import Mapping
from typing import Any, Final

from mcpbus.auth.verifiers import InvalidTokenError

AT_JWT: Final = "at+jwt"
JWT: Final = "jwt"

_NO_ACCESS: Final = "it is no access token, but"
_TYPES: Final[Mapping[str | None, str | None]] = {
    AT_JWT: None,
    JWT: None,
    None: None,  # a token without `typ`
    "id_token+jwt": "an ID token",
    "logout+jwt": "a logout token",
    "secevent+jwt": "a security event token",
    "dpop+jwt": "a proof of possession",
    "kb+jwt": "a proof of possession",
    "refresh+jwt": "a refresh token",
    "rt+jwt": "a refresh token",
    "client-authentication+jwt": "a client's assertion",
    "oauth-authz-req+jwt": "an authorization request",
    "token-introspection+jwt": "an answer about a token",
}
"""Each `typ` in lower case and without ``application/``: None if it may be an access token's, otherwise the token that it is."""

_CLAIMS: Final[Mapping[str, Mapping[str, str]]] = {
    # Keycloak
    "typ": {
        "id": "an ID token",
        "refresh": "a refresh token",
        "offline": "a refresh token",
        "logout": "a logout token",
    },
    # Amazon Cognito and Ory Hydra
    "token_use": {
        "id": "an ID token",
        "id_token": "an ID token",
        "refresh": "a refresh token",
        "refresh_token": "a refresh token",
    },
    # RFC 7662, section 2.2
    "token_type": {
        "id_token": "an ID token",
        "refresh_token": "a refresh token",
        "dpop": "a token that is bound to a key",
        "pop": "a token that is bound to a key",
        "mac": "a token that is bound to a key",
        "n_a": "a token of another kind",
    },
}
"""Claims that name the kind of a token, with the values of other kinds in lower case."""

_PRESENT: Final[Mapping[str, str]] = {
    "events": "a security event token",  # RFC 8417, section 2.2; a logout token is one
    "at_hash": "an ID token",  # OpenID Connect Core, section 3.1.3.6
    "c_hash": "an ID token",
    "s_hash": "an ID token",
}
"""Claims that no access token has."""


def read_type(typ: Any) -> str | None:
    """Return the `typ` of a header in lower case and without ``application/`` (RFC 7515, section 4.1.9).

    Args:
        typ: The parameter; None if there is none.

    Raises:
        InvalidTokenError: It is no text.
    """
    if typ is None:
        return None
    if not isinstance(typ, str):
        raise InvalidTokenError("its typ is no text")
    return typ.lower().removeprefix("application/")


def check_type(typ: str | None, needed: str | None) -> None:
    """Check the `typ` of a signed token.

    Args:
        typ: As `read_type` returns it.
        needed: The only one that is accepted; None for each that an access token may have.

    Raises:
        InvalidTokenError: The token is no access token.
    """
    kind = _TYPES.get(typ, "a token of another type")
    if kind is not None:
        raise InvalidTokenError(f"{_NO_ACCESS} {kind}")
    if needed is not None and typ != needed:
        raise InvalidTokenError(f"{_NO_ACCESS} a token of another type: its typ is not {needed}")


def check_kind(claims: Mapping[str, Any]) -> None:
    """Check that the claims are those of an access token, which each bearer may use.

    Raises:
        InvalidTokenError: They are not.
    """
    for name, kinds in _CLAIMS.items():
        value = claims.get(name)
        if isinstance(value, str):
            kind = kinds.get(value.lower())
            if kind is not None:
                raise InvalidTokenError(f"{_NO_ACCESS} {kind}")
    for name, kind in _PRESENT.items():
        if name in claims:
            raise InvalidTokenError(f"{_NO_ACCESS} {kind}")
    # RFC 7800, section 3.1. A stolen token would work without the key, if it worked as a bearer token.
    if claims.get("cnf") is not None:
        raise InvalidTokenError("it is bound to a key (cnf), and no proof of that key is accepted here")
