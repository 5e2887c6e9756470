"""Tokens of several issuers."""

from collections.abc import Sequence

from mcpbus.auth.verifier import (
    InvalidTokenError,
    TokenVerifier,
    VerifiedToken,
    VerifierUnavailableError,
    check_verifier,
)
from mcpbus.protocol.keywords import explained


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
