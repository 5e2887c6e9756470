"""What a resource server asks about each token that it has not seen yet."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final, Protocol

import msgspec

from mcpbus.auth.principal import Principal
from mcpbus.protocol.keywords import Explained, explained
from mcpbus.protocol.owners import Peer

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
