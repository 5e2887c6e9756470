"""Tokens that only their issuer can read: it is asked about each of them (RFC 7662)."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import trio

from mcpbus.auth.discovery import find_endpoint
from mcpbus.auth.jwt import check_claims, read_audience, read_principal
from mcpbus.auth.line import IssuerQueue
from mcpbus.auth.question import IntrospectionCall
from mcpbus.auth.verifier import InvalidTokenError, VerifiedToken, VerifierUnavailableError, brought_by
from mcpbus.auth.web import SECONDS, HttpxIssuerHttp, IssuerHttp, ask
from mcpbus.protocol.http.addresses import read_address
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.owners import Peer
from mcpbus.protocol.validators import check_text

BELIEVED_SECONDS: Final = 60.0
"""How long an answer is believed: so long a token works on that was revoked."""
_AT_ONCE: Final = 32


@explained
class IntrospectionVerifier:
    """Verifies tokens by asking their issuer, once for all requests that bring the same one at the same time.

    Args:
        issuer: Who issues them.
        client_id: What this server is called there.
        client_secret: Its secret.
        audience: For whom they have to be issued, if not for the server's own URI; one of several.
        address: Where to ask; found through the issuer's metadata if left out.
        web: Who asks the issuer.

    Raises:
        ValueError: An address is neither https nor on this machine.
    """

    local = False

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str,
        audience: str | Iterable[str] = (),
        address: str | None = None,
        web: IssuerHttp | None = None,
    ) -> None:
        read_address(issuer, "issuer")
        if address is not None:
            read_address(address, "address")
        check_text(type(self).__name__, client_id=client_id, client_secret=client_secret)
        self.issuer = issuer
        self.issuers = (issuer,)
        self.web: IssuerHttp = web or HttpxIssuerHttp()
        self._login = client_id, client_secret
        self._audience = read_audience(audience)
        self._address = address
        self._asking: dict[str, IntrospectionCall[Mapping[str, Any]]] = {}
        # Whoever makes tokens up does not have the issuer flooded with questions, and others wait behind those for their turn.
        self._line = IssuerQueue(_AT_ONCE)

    async def verify(self, token: str, resource: str, now: float) -> VerifiedToken:
        """See `TokenVerifier`."""
        question = self._asking.get(token)
        if question is None:
            question = IntrospectionCall(
                partial(self._ask, token, brought_by.get()), f"a token of {self.issuer}"
            )
            self._asking[token] = question
        try:
            claims = await question.answer()
        finally:
            if not question.waiting:
                del self._asking[token]
        if claims.get("active") is not True:
            raise InvalidTokenError("it is not active")
        if claims.get("iss", self.issuer) != self.issuer:
            raise InvalidTokenError("it was issued by somebody else")
        believed = now + BELIEVED_SECONDS
        # It need not say when a token expires: it is asked again before long.
        timed = {"exp": believed, **claims}
        found = check_claims(timed, self.issuer, self._audience or (resource,), now)
        expires = found.principal.expires if "exp" in claims else None
        # From then on its issuer is asked each time, by whose clock it is still good or not.
        until = believed if expires is None else min(believed, expires)
        return VerifiedToken(read_principal(claims, self.issuer, expires), until)

    async def _ask(self, token: str, peer: Peer | None) -> Mapping[str, Any]:
        """Return what the issuer says of a token.

        Raises:
            VerifierUnavailableError: It cannot be asked.
        """
        with trio.move_on_after(SECONDS) as line:
            async with self._line.turn(peer):
                line.deadline = math.inf
                address = self._address
                if address is None:
                    address = await find_endpoint(self.web, self.issuer, "introspection_endpoint")
                    self._address = address
                form = {"token": token, "token_type_hint": "access_token"}
                return await ask(self.web, "POST", address, form, self._login)
        raise VerifierUnavailableError(
            f"{self.issuer} has been asked about too many tokens for {SECONDS:g} s"
        )
