"""What a resource server asks about each token that it has not seen yet.

Tokens that are written down, for development.

Tokens of several issuers.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec

from mcpbus.auth.principal import Principal
from mcpbus.protocol.keywords import Explained, explained
from mcpbus.protocol.principals import Peer

LEEWAY: Final = 30.0
"""Seconds by which clocks may differ."""

brought_by: Final[ContextVar[Peer | None]] = ContextVar("brought_by", default=None)
"""From where the token came that is being verified, which says nothing about whether it is good."""


class InvalidTokenError(Exception):
    """A token is no good, and never will be: its client is to get another one.

    Args:
        why: What is wrong, for the client to read; nothing of the token itself.
    """


@explained
class VerifierUnavailableError(Exception):
    """It cannot be told whether a token is good; perhaps in a moment.

    Args:
        why: What went wrong, for the log.
        retry_after: Seconds after which it may be asked again.
    """

    def __init__(self, why: str, retry_after: int = 5) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class VerifiedToken(msgspec.Struct, metaclass=Explained, frozen=True):
    """What was found out about a token that is good.

    Attributes:
        principal: Whose it is.
        until: Until when that may be believed without another look, in seconds since the epoch.
    """

    principal: Principal
    until: float


class TokenVerifier(Protocol):
    """Tells whose a token is."""

    @property
    def issuers(self) -> Sequence[str]:
        """Who issues such tokens, for clients that have none."""

    @property
    def local(self) -> bool:
        """Whether it is for development only: nobody else may connect than who is on the same machine."""

    async def verify(self, token: str, resource: str, now: float) -> VerifiedToken:
        """Tell whose a token is.

        Args:
            token: The token.
            resource: The canonical URI of the server, for which the token has to be issued.
            now: The time, in seconds since the epoch.

        Raises:
            InvalidTokenError: It is no good.
            VerifierUnavailableError: That cannot be told at the moment.
        """


def check_verifier(verifier: object, name: str) -> None:
    """Refuse what is no verifier.

    Raises:
        TypeError: the message says what to write.
    """
    if isinstance(verifier, type) or not hasattr(verifier, "verify"):
        raise TypeError(f"{name} is a JwtVerifier(...) or another TokenVerifier, not {verifier!r}")


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


@explained
class AnyTokenVerifier:
    """Takes a token that one of several verifiers takes, which are asked in their order.

    One whose issuer cannot be asked does not stand in the way of the others' tokens. A verifier that asks about every token, such as
    an `IntrospectionVerifier`, comes last.

    Args:
        *verifiers: The verifiers.

    Raises:
        TypeError: One is none.
        ValueError: There is none.
    """

    def __init__(self, *verifiers: TokenVerifier) -> None:
        if not verifiers:
            raise ValueError("AnyTokenVerifier() has no verifier")
        for each in verifiers:
            check_verifier(each, "AnyTokenVerifier: each")
        self.verifiers = verifiers

    @property
    def issuers(self) -> Sequence[str]:
        """See `TokenVerifier`."""
        return tuple(dict.fromkeys(issuer for verifier in self.verifiers for issuer in verifier.issuers))

    @property
    def local(self) -> bool:
        """See `TokenVerifier`."""
        return any(verifier.local for verifier in self.verifiers)

    async def verify(self, token: str, resource: str, now: float) -> VerifiedToken:
        """See `TokenVerifier`."""
        unavailable: VerifierUnavailableError | None = None
        reasons = []
        for verifier in self.verifiers:
            try:
                return await verifier.verify(token, resource, now)
            except InvalidTokenError as error:
                reasons.append(str(error))
            except VerifierUnavailableError as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable
        # Of its own issuer, as far as that can be told: the others only say that it is not theirs.
        elsewhere = "it was issued by somebody else"
        raise InvalidTokenError(next((reason for reason in reasons if reason != elsewhere), elsewhere))
