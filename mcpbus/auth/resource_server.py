"""A server for which others issue tokens: who may ask it what (OAuth 2.1, RFC 6750, RFC 9728).

Tokens that were found good, so that a client that goes on with one costs no second look.
"""

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import trio

from mcpbus.auth.principal import Principal
from mcpbus.auth.verifiers import (
    LEEWAY,
    InvalidTokenError,
    TokenVerifier,
    VerifiedToken,
    VerifierUnavailableError,
    brought_by,
    check_verifier,
)
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.bearer import (
    LONGEST_TOKEN,
    MalformedAuthorizationError,
    NewToken,
    challenge,
    read_token,
)
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, refusal
from mcpbus.protocol.http.options import is_loopback_host
from mcpbus.protocol.http.resource_metadata import WELL_KNOWN, canonical
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.scopes import Scopes, read_scopes

_MOST_RECENT: Final = 1024

MOST_TOKENS: Final = 16 * 1024
MOST_BYTES: Final = 32 * 1024 * 1024
"""How many tokens are remembered, and how much memory what is known of them may take, which is mostly claims."""

_TOKEN_BYTES: Final = 600
_MAPPING_BYTES: Final = 190
_ITEM_BYTES: Final = 40
_VALUE_BYTES: Final = 50
"""About how much memory a token takes besides its claims, and of those what an object takes besides, a place in it, and each value."""


class VerifiedTokenCache:
    """What was found out about tokens, by a digest of what brings them; what was not asked for longest is forgotten first.

    How long a look-up takes says nothing about them.
    """

    def __init__(self) -> None:
        # Each with when it was found out: to a clock that was set back, what is believed for a minute would be good for hours.
        self._known: OrderedDict[bytes, tuple[VerifiedToken, float, int]] = OrderedDict()
        self._size = 0
        # A server that remembers what clients send hands in the very same object again; to digest it takes longest of all.
        self._recent: dict[int, tuple[bytes, VerifiedToken, float]] = {}

    def find(self, credentials: bytes, now: float) -> VerifiedToken | bytes:
        """Return what is known of the token in an Authorization field, as long as that may be believed; or else their digest."""
        recent = self._recent.get(id(credentials))
        # As long as it is kept there, nothing else has its id.
        if recent is not None:
            if recent[2] <= now < recent[1].until:
                return recent[1]
            del self._recent[id(credentials)]  # a clock that was set back comes to its time once more
        digest = sha256(credentials).digest()
        found = self._known.get(digest)
        if found is None:
            return digest
        verified, since, _ = found
        if not since <= now < verified.until:
            if now < since:
                self._forget_later(now)
            else:
                self._forget(digest)
            return digest
        self._known.move_to_end(digest)
        if len(self._recent) >= _MOST_RECENT:
            self._recent.clear()
        self._recent[id(credentials)] = credentials, verified, since
        return verified

    def keep(self, digest: bytes, verified: VerifiedToken, since: float) -> None:
        """Remember what was found out about a token that is good.

        Args:
            digest: Of the field that has brought it.
            verified: What was found out.
            since: When that was, in seconds since the epoch.
        """
        if digest in self._known:
            self._forget(digest)
        size = _weigh(verified.principal.claims)
        self._known[digest] = verified, since, size
        self._size += size
        while self._has_one_too_many(since):
            self._forget(next(iter(self._known)))

    def _has_one_too_many(self, now: float) -> bool:
        """Whether what was not asked for longest has to go: nobody asks for what is believed no more."""
        if not self._known:
            return False
        verified, _, _ = next(iter(self._known.values()))
        return len(self._known) > MOST_TOKENS or self._size > MOST_BYTES or verified.until <= now

    def _forget_later(self, now: float) -> None:
        """Forget what was found out later than now: the clock was set back, and comes to the time of all of that once more."""
        for digest in [digest for digest, (_, since, _) in self._known.items() if since > now]:
            self._forget(digest)
        self._recent.clear()

    def _forget(self, digest: bytes) -> None:
        _, _, size = self._known.pop(digest, (None, 0.0, 0))
        self._size -= size

    def __len__(self) -> int:
        return len(self._known)


def _weigh(claims: Mapping[str, Any]) -> int:
    """Return about how many bytes of memory it takes to remember a token with these claims."""
    size, left = _TOKEN_BYTES, [claims]
    while left:
        value: Any = left.pop()
        size += _VALUE_BYTES
        if isinstance(value, str):  # most are; whether it is a mapping takes longest to find out
            size += len(value)
        elif isinstance(value, tuple):
            left += value
        elif not isinstance(value, int | float) and isinstance(value, Mapping):
            size += _MAPPING_BYTES + _ITEM_BYTES * len(value)
            left += value.values()  # of most names there is one for all tokens
    return size


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
