"""Tokens that are written down, for development."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from mcpbus.auth.principal import Principal
from mcpbus.auth.verifier import InvalidTokenError, VerifiedToken
from mcpbus.protocol.keywords import explained

_ISSUER: Final = "http://localhost"


@explained
class StaticTokenVerifier:
    """Takes tokens that are written down, and serves nobody but this machine: there is no issuer who could take them back.

    Args:
        tokens: Whose each token is: a `Principal`, or the scopes that it has, as ``{"secret": "files:read files:write"}``.

    Raises:
        TypeError: They are no dict of texts.
        ValueError: There is none.
    """

    issuers = (_ISSUER,)
    local = True

    def __init__(self, tokens: Mapping[str, Principal | str]) -> None:
        given: Any = tokens
        if not isinstance(given, Mapping) or not all(isinstance(token, str) for token in given):
            raise TypeError(
                'StaticTokenVerifier: tokens is a dict of what each allows, such as {"secret": "files:read"}'
            )
        if not tokens:
            raise ValueError("StaticTokenVerifier() has no token")
        # By digest: how long the look-up takes says nothing about a token.
        self._principals = {
            _digest(token): whose
            if isinstance(whose, Principal)
            else Principal(_ISSUER, "developer", "developer", whose)
            for token, whose in tokens.items()
        }

    async def verify(self, token: str, resource: str, now: float) -> VerifiedToken:  # noqa: ARG002 - as the protocol has it
        """See `TokenVerifier`."""
        principal = self._principals.get(_digest(token))
        if principal is None:
            raise InvalidTokenError("it is not known")
        return VerifiedToken(principal, float("inf"))


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
