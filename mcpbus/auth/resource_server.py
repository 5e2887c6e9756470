"""A server for which others issue tokens: who may ask it what (OAuth 2.1, RFC 6750, RFC 9728)."""

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import trio

from mcpbus.auth.principal import Principal
from mcpbus.auth.remembered import VerifiedTokenCache
from mcpbus.auth.verifier import (
    LEEWAY,
    InvalidTokenError,
    TokenVerifier,
    VerifiedToken,
    VerifierUnavailableError,
    brought_by,
    check_verifier,
)
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.addresses import canonical
from mcpbus.protocol.http.bearer import (
    LONGEST_TOKEN,
    MalformedAuthorizationError,
    NewToken,
    challenge,
    read_token,
)
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, refusal
from mcpbus.protocol.http.origin import is_loopback_host
from mcpbus.protocol.http.resource_metadata import WELL_KNOWN
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.owners import Peer
from mcpbus.protocol.scopes import Scopes, read_scopes

_NOTHING: Final[frozenset[str]] = frozenset()
_QUIET_SECONDS: Final = 30.0
_log = logging.getLogger("mcpbus.auth")


@explained
class ResourceServer:
    """Lets those in who bring a token that was issued for this server, and tells the others where to get one.

    Args:
        resource: The canonical URI of the server: where clients reach it, and for whom tokens have to be issued. Nothing that a
            request says changes it.
        verifier: Tells whose a token is.
        scopes: What every request needs.
        implies: What the broader scopes include: ``{"files:admin": ["files:read", "files:write"]}``.
        name: The server's name for people, who are asked whether a client may have a token for it.
        documentation: Where they read more about it.

    Attributes:
        resource: The same, in its canonical form.
        verifier: The same.
        local: Whether its tokens are for development only, on this machine alone.
        metadata: What clients find out about the server, who look for whoever issues tokens for it.
        metadata_url: Where they find it.
        clock: Tells the time, in seconds since the epoch.

    Raises:
        TypeError: The verifier is none.
        ValueError: The URI or a scope cannot be one, or tokens that are for development only should protect more than this machine.
    """

    def __init__(
        self,
        resource: str,
        verifier: TokenVerifier,
        *,
        scopes: Iterable[str] = (),
        implies: Mapping[str, Iterable[str]] | None = None,
        name: str | None = None,
        documentation: str | None = None,
    ) -> None:
        check_verifier(verifier, "verifier")
        self.resource = canonical(resource)
        self.verifier = verifier
        self.local = verifier.local
        self.clock: Callable[[], float] = time.time
        parts = urlsplit(self.resource)
        if self.local and not is_loopback_host(parts.hostname or ""):
            raise ValueError(
                f"{type(verifier).__name__} is for development, on this machine alone: {resource} is elsewhere"
            )
        self.metadata_url = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"
        self._needed = read_scopes(scopes, "ResourceServer")
        self._scopes = Scopes(implies or {})
        self._name = name
        self._documentation = documentation
        self._remembered = VerifiedTokenCache()
        self._complained = -math.inf
        unknown = challenge(self.metadata_url, self._needed)
        self._without_token = _refuse(
            401, "a token is needed; WWW-Authenticate says where to get one", unknown
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """See the class."""
        said = {
            "resource": self.resource,
            "authorization_servers": list(self.verifier.issuers),
            "scopes_supported": list(self._needed) or None,
            "bearer_methods_supported": ["header"],
            "resource_name": self._name,
            "resource_documentation": self._documentation,
        }
        return {name: value for name, value in said.items() if value is not None}

    @property
    def document(self) -> bytes:
        """See `Authorizer`."""
        return msgspec.json.encode(self.metadata)

    def recall(self, head: RequestHead, peer: Peer) -> Principal | HttpResponse | NewToken:
        """See `Authorizer`."""
        if self.local and peer.address is not None and not peer.address.is_loopback:
            return _refuse(403, "the tokens of this server are for development, on its own machine alone")
        raw = head.headers.raw(b"authorization")
        if raw is None:
            return self._without_token
        if isinstance(raw, bytes):
            known = self._remembered.find(raw, self.clock())
            return known.principal if isinstance(known, VerifiedToken) else self._read(raw, known)
        return self._malformed("there is more than one Authorization header")

    def _read(self, authorization: bytes, digest: bytes) -> HttpResponse | NewToken:
        try:
            token = read_token(authorization)
        except MalformedAuthorizationError as error:
            return self._malformed(str(error))
        if token is None:
            return self._without_token
        return self._invalid("it is too long") if len(token) > LONGEST_TOKEN else NewToken(token, digest)

    async def find(self, new: NewToken, peer: Peer) -> Principal | HttpResponse:
        """See `Authorizer`."""
        now, brought = self.clock(), brought_by.set(peer)
        try:
            verified = await self.verifier.verify(new.token, self.resource, now)
        except InvalidTokenError as error:
            return self._invalid(str(error))
        except VerifierUnavailableError as error:
            self._complain(error)
            wait = (b"retry-after", b"%d" % error.retry_after)
            return refusal(
                503, invalid_request("tokens cannot be verified at the moment; try again"), None, wait
            )
        finally:
            brought_by.reset(brought)
        self._remembered.keep(new.digest, verified, now)
        return verified.principal

    def missing(self, principal: Any, scopes: Collection[str] = ()) -> Sequence[str]:
        """See `Authorizer`."""
        # In process anything may be a principal, and then nothing is allowed to it.
        granted: frozenset[str] = getattr(principal, "scopes", _NOTHING)
        if not scopes and granted.issuperset(self._needed):
            return ()
        needed = tuple(dict.fromkeys((*self._needed, *scopes)))
        return needed if self._scopes.missing(needed, granted) else ()

    def step_up(self, scopes: Sequence[str]) -> HttpResponse:
        """See `Authorizer`."""
        why = "the token does not allow this"
        return _refuse(403, why, challenge(self.metadata_url, scopes, "insufficient_scope", why))

    def seconds_left(self, principal: Any) -> float:
        """See `Authorizer`."""
        expires = getattr(principal, "expires", None)
        return float("inf") if expires is None else max(0.0, expires + LEEWAY - self.clock())

    def _malformed(self, why: str) -> HttpResponse:
        return self._refuse_token(400, "invalid_request", why)

    def _invalid(self, why: str) -> HttpResponse:
        return self._refuse_token(401, "invalid_token", f"the token is no good: {why}")

    def _refuse_token(self, status: int, error: str, why: str) -> HttpResponse:
        return _refuse(status, why, challenge(self.metadata_url, self._needed, error, why))

    def _complain(self, error: VerifierUnavailableError) -> None:
        """Tell the log that tokens cannot be verified, now and then: clients come again and again."""
        now = trio.current_time()
        if abs(now - self._complained) >= _QUIET_SECONDS:
            self._complained = now
            _log.warning("tokens cannot be verified: %s", error)

    def __repr__(self) -> str:
        return f"<ResourceServer {self.resource}, tokens of {', '.join(self.verifier.issuers)}>"


def _refuse(status: int, why: str, challenging: str | None = None) -> HttpResponse:
    fields = () if challenging is None else ((b"www-authenticate", challenging.encode()),)
    return refusal(status, invalid_request(why), None, *fields)
