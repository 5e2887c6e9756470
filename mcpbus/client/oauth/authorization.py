"""The page on which a person logs in, and what comes back from it (OAuth 2.1, section 4.1; RFC 7636; RFC 9207)."""

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs

from mcpbus.client.oauth.errors import LoginError, LoginRefusedError, MetadataError, said_why, sanitize
from mcpbus.client.oauth.login import KnownClient
from mcpbus.client.oauth.metadata import AuthorizationServer
from mcpbus.client.oauth.scopes import OFFLINE

_MOST_PARAMETERS = 50
_ONCE = ("state", "iss", "code", "error")
_STEERING = frozenset("\"'`<>\\^{|}$;")
"""What no page to log in at needs; no shell is between us and the browser, but there may be one behind it."""


@attrs.frozen
class AuthorizationRequest:
    """A request to let a person log in, with what proves later that the answer belongs to it.

    Attributes:
        url: The page; it holds the state, and is for the person's browser alone.
        redirect: Where the person is sent back to.
        issuer: At whom.
        state: Tells the answer to this request from others.
        verifier: Tells who asked from others.
    """

    url: str = attrs.field(repr=False)
    redirect: str
    issuer: AuthorizationServer
    state: str = attrs.field(repr=False)
    verifier: str = attrs.field(repr=False)


def make_request(
    issuer: AuthorizationServer,
    client: KnownClient,
    redirect: str,
    *,
    resource: str,
    scopes: Sequence[str],
    assume_pkce: bool = False,
) -> AuthorizationRequest:
    """Make the request to log in.

    Args:
        issuer: Where.
        client: As which client.
        redirect: Where the person is sent back to.
        resource: For which server.
        scopes: What to ask for.
        assume_pkce: Whether the issuer is taken to check who comes for the tokens, though it does not say so.

    Raises:
        MetadataError: Nobody can log in there, or not safely.
    """
    where = sanitize(issuer.name)
    if issuer.authorization_endpoint is None:
        raise MetadataError(f"{where} has no page to log in at (authorization_endpoint)")
    if not (issuer.pkce or assume_pkce):
        raise MetadataError(
            f"{where} does not say that it supports PKCE (code_challenge_methods_supported has no S256), without which codes "
            "can be stolen: if you know that it does, say assume_pkce"
        )
    if _STEERING & set(issuer.authorization_endpoint):
        raise MetadataError(f"{where} has a page to log in at whose address holds what steers shells")
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    parameters = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
        "resource": resource,
    }
    if scopes:
        parameters["scope"] = " ".join(scopes)
    if OFFLINE in scopes:
        parameters["prompt"] = "consent"  # without which OpenID Connect, section 11, has it ignored
    page = urlsplit(issuer.authorization_endpoint)
    query = "&".join(part for part in (page.query, urlencode(parameters)) if part)
    return AuthorizationRequest(page._replace(query=query).geturl(), redirect, issuer, state, verifier)


def code_challenge(verifier: str) -> str:
    """Return what the verifier is known by until it is shown (RFC 7636, section 4.2)."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def belongs(query: str, request: AuthorizationRequest) -> bool:
    """Whether it is to this request that a person was sent back with a query, rather than made up, or of another time."""
    states = [value for name, value in _read(query) if name == "state"]
    return len(states) == 1 and hmac.compare_digest(states[0].encode(), request.state.encode())


def validate_redirect(query: str, request: AuthorizationRequest) -> str:
    """Return the code with which a person was sent back.

    Args:
        query: That of the address.
        request: The request.

    Raises:
        LoginError: It belongs to no such request, or comes from another issuer; nothing of it is told then.
        LoginRefusedError: The issuer, or the person, has refused.
    """
    where = sanitize(request.issuer.name)
    if not belongs(query, request):
        raise LoginError(f"what came back from {where} belongs to no login that was begun here")
    parameters = _read(query)
    told = dict(parameters)
    if any(sum(name == each for name, _ in parameters) > 1 for each in _ONCE):
        raise LoginError(f"what came back from {where} says something twice")
    issuer = told.get("iss")
    if issuer is None and request.issuer.says_itself:
        raise LoginError(f"what came back does not say that it is from {where}, which it would (iss)")
    if issuer is not None and issuer != request.issuer.name:
        raise LoginError(f"what came back is not from {where}, but from somebody else (iss)")
    if "error" in told:
        code = sanitize(told["error"])
        raise LoginRefusedError(f"{where} has let nobody log in ({code}{said_why(told)})", code)
    if not told.get("code"):
        raise LoginError(f"what came back from {where} has no code")
    return told["code"]


def _read(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        return []
