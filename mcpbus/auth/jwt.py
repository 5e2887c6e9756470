"""Tokens that say themselves whose they are, and are signed (RFC 7519, RFC 9068)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from joserfc.jws import JWSRegistry

from mcpbus.auth.issuer_http import HttpxIssuerHttp, IssuerHttp
from mcpbus.auth.jws import Check, SignatureHeader, SignedToken, read_signed
from mcpbus.auth.keys import Keys
from mcpbus.auth.principal import Principal
from mcpbus.auth.token_types import AT_JWT, JWT, check_kind, check_type, read_type
from mcpbus.auth.verifiers import LEEWAY, InvalidTokenError, VerifiedToken
from mcpbus.protocol.bounded_cache import BoundedCache
from mcpbus.protocol.http.resource_metadata import canonical, read_address
from mcpbus.protocol.keywords import explained

ALGORITHMS: Final = ("RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519")
"""With which tokens may be signed, unless others are named."""

_PUBLIC: Final = frozenset({*ALGORITHMS, "RS384", "RS512", "PS384", "PS512", "ES512"})
_REQUIRABLE: Final = (None, AT_JWT, JWT, "JWT")
_NUMBERS: Final = frozenset({int, float})


@explained
class JwtVerifier:
    """Verifies the signed tokens of one issuer.

    Its keys are asked for when the first token comes, and not at the start: a server whose issuer is down starts all the same.

    Args:
        issuer: Who issues them, exactly as it stands in their `iss`.
        audience: For whom they have to be issued, if not for the server's own URI; one of several.
        jwks_uri: Where the keys are; found through the issuer's metadata if left out.
        algorithms: With which they may be signed.
        typ: The `typ` that each must have, such as ``at+jwt`` of RFC 9068. If left out, ``at+jwt``, ``JWT`` and none are accepted.
        web: Who asks the issuer.

    Raises:
        TypeError: The algorithms are no list.
        ValueError: An address is neither https nor on this machine, an algorithm has no public keys, or no access token has that `typ`.
    """

    local = False

    def __init__(
        self,
        issuer: str,
        *,
        audience: str | Iterable[str] = (),
        jwks_uri: str | None = None,
        algorithms: Sequence[str] = ALGORITHMS,
        typ: str | None = None,
        web: IssuerHttp | None = None,
    ) -> None:
        read_address(issuer, "issuer")
        if jwks_uri is not None:
            read_address(jwks_uri, "jwks_uri")
        if isinstance(algorithms, str):  # whose letters would be the names
            raise TypeError(f"algorithms is a list: write algorithms=[{algorithms!r}]")
        refused = sorted(set(algorithms) - _PUBLIC)
        if refused or not algorithms:
            raise ValueError(
                f"algorithms are some of {', '.join(sorted(_PUBLIC))}, not {', '.join(refused) or 'none'}"
            )
        if typ not in _REQUIRABLE:
            raise ValueError(f"typ is {typ!r}: it must be {AT_JWT!r} or 'JWT', or left out")
        self._typ = read_type(typ)
        self.issuer = issuer
        self.issuers = (issuer,)
        self.web: IssuerHttp = web or HttpxIssuerHttp()
        self._audience = read_audience(audience)
        self._keys = Keys(issuer, jwks_uri, lambda: self.web)
        self._algorithms = {name: JWSRegistry.algorithms[name] for name in algorithms}
        # An issuer writes few headers. Of the others, which anybody can write, none is remembered.
        self._headers = BoundedCache[bytes, SignatureHeader]()

    async def verify(self, token: str, resource: str, now: float) -> VerifiedToken:
        """See `TokenVerifier`."""
        read = read_signed(token, self._headers)
        header = read.header
        algorithm = self._algorithms.get(header.alg)
        if algorithm is None:
            raise InvalidTokenError("it is not signed with an algorithm that is admitted here")
        check_type(read_type(header.typ), self._typ)
        if header.crit is not msgspec.UNSET:
            raise InvalidTokenError("it has critical extensions, of which none is known here")
        # Before anybody is asked for keys: with several issuers, each has its own.
        if read.claims.get("iss") != self.issuer:
            raise InvalidTokenError("it was issued by somebody else")
        keys = self._keys
        checks = keys.known(header.kid, algorithm) or await keys.find(header.kid, algorithm)
        if not checks:
            raise InvalidTokenError("it is signed with a key that the issuer does not have")
        if not _is_signed(read, checks) and not _is_signed(read, await keys.renew(header.kid, algorithm)):
            raise InvalidTokenError("its signature is wrong")
        if read.written not in self._headers:
            self._headers.keep(read.written, header, len(read.written))
        return check_claims(read.claims, self.issuer, self._audience or (resource,), now)


def _is_signed(read: SignedToken, checks: Sequence[Check]) -> bool:
    return any(check(read.signed, read.signature) for check in checks)


def read_audience(audience: str | Iterable[str]) -> tuple[str, ...]:
    """Return for whom tokens may be issued; with a server's own URI as `canonical` has it."""
    return (audience,) if isinstance(audience, str) else tuple(audience)


def check_claims(
    claims: Mapping[str, Any], issuer: str, audience: Collection[str], now: float
) -> VerifiedToken:
    """Check what a token says, which is known to come from its issuer.

    Args:
        claims: What it says.
        issuer: Who it is.
        audience: For whom it may be issued: one of them is enough.
        now: The time, in seconds since the epoch.

    Raises:
        InvalidTokenError: It is no access token, not for this server, or not for now.
    """
    check_kind(claims)
    if not _is_meant(claims.get("aud"), audience):
        raise InvalidTokenError("it was issued for another audience")
    expires = claims.get("exp")
    if expires is None:
        raise InvalidTokenError("it never expires")
    expires = _read_time(expires, "exp")
    if now >= expires + LEEWAY:
        raise InvalidTokenError("it has expired")
    for name in ("nbf", "iat"):
        begins = claims.get(name)
        if begins is not None and now < _read_time(begins, name) - LEEWAY:
            raise InvalidTokenError("it is not valid yet")
    return VerifiedToken(read_principal(claims, issuer, expires), expires + LEEWAY)


def read_principal(claims: Mapping[str, Any], issuer: str, expires: float | None) -> Principal:
    """Return whose a token is.

    Raises:
        InvalidTokenError: It does not say, or what it says cannot be kept.
    """
    subject = claims.get("sub")
    client = claims.get("client_id")
    if client is None:
        client = claims.get("azp")
    client = subject if client is None else client
    # One that a program has for itself names no subject at some issuers.
    subject = client if subject is None else subject
    if not isinstance(subject, str) or not isinstance(client, str) or not subject:
        raise InvalidTokenError("it does not say whose it is")
    try:
        return Principal(issuer, subject, client, read_scopes(claims), claims, expires)
    except RecursionError:
        raise InvalidTokenError("it is nested too deeply") from None


def read_scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return what a token allows: `scope`, which is text, or else `scp`, which is text or a list."""
    scopes = claims.get("scope")
    scopes = claims.get("scp") if scopes is None else scopes
    if isinstance(scopes, str):
        return frozenset(scopes.split())
    return (
        frozenset(scope for scope in scopes if isinstance(scope, str))
        if isinstance(scopes, list)
        else frozenset()
    )


def _is_meant(stated: Any, audience: Collection[str]) -> bool:
    if isinstance(stated, str):
        return stated in audience or _plain(stated) in audience
    return isinstance(stated, list) and any(
        _is_meant(name, audience) for name in stated if isinstance(name, str)
    )


def _plain(name: str) -> str | None:
    """Return a URI as a server's own is compared; None if it is no such URI."""
    try:
        return canonical(name)
    except ValueError:
        return None


def _read_time(stated: Any, name: str) -> float:
    """Return when something begins or ends.

    Raises:
        InvalidTokenError: It is no time.
    """
    if type(stated) not in _NUMBERS or abs(stated) > 1e12:
        raise InvalidTokenError(f"its {name} is no time")
    return float(stated)
