"""As which client one logs in, and how that is told (specification, "Client Registration"; RFC 7591; RFC 6749, section 2.3).

What an issuer has given to a client is that issuer's: at another one the client is unknown, or an impostor.
"""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote_plus

import attrs

from mcpbus.client.oauth.discovery import AuthorizationServer, same_issuer
from mcpbus.client.oauth.errors import LoginError, LoginNeededError, LoginRefusedError, said_why, sanitize
from mcpbus.client.oauth.http import succeeded
from mcpbus.client.oauth.login import DOCUMENT, GIVEN, REGISTERED, KnownClient, Login

NONE, BASIC, POST = "none", "client_secret_basic", "client_secret_post"
_WITH_SECRET: Final = (BASIC, POST)


@attrs.frozen
class ClientIdentity:
    """By what a client may be known.

    Attributes:
        id: Its name at the issuer, where it is known already.
        secret: By what it proves that.
        document: The URL of its metadata (OAuth Client ID Metadata Document).
        name: What it is called for people.
        issuer: The only issuer to whom it may be introduced by what is given here.
    """

    id: str | None = None
    secret: str | None = attrs.field(default=None, repr=False)
    document: str | None = None
    name: str = "mcpbus"
    issuer: str | None = None


def check_issuer(introduction: ClientIdentity, issuer: AuthorizationServer, before: Login | None) -> None:
    """Refuse to tell an issuer as which client another one knows us.

    Raises:
        LoginError: It is another one than the user has named, or than the given client has logged in at.
    """
    named = introduction.issuer
    if named is not None:
        if not same_issuer(named, issuer.name):
            raise LoginError(
                f"the server names the issuer {sanitize(issuer.name)}, and the only one to log in at (issuer) is {sanitize(named)}"
            )
        return
    if before is None or before.client.how != GIVEN or introduction.document is not None:
        return
    known = before.issuer.name
    if introduction.id in {None, before.client.id} and not same_issuer(known, issuer.name):
        raise LoginError(
            f"the server now names the issuer {sanitize(issuer.name)}, and the client is known to {sanitize(known)}: "
            "if that is right, log out, and log in as a client that the new one knows"
        )


def find_client(
    introduction: ClientIdentity, issuer: AuthorizationServer, before: Login | None
) -> KnownClient | None:
    """Return as which client to log in at an issuer; None if it has to register first.

    Args:
        introduction: By what it may be known.
        issuer: To whom.
        before: The last login at that server.

    Raises:
        LoginNeededError: There is none that the issuer could know.
    """
    known = before.client if before is not None and before.issuer.name == issuer.name else None
    if introduction.id is not None:
        return _given(introduction.id, introduction.secret, issuer)
    document = introduction.document
    if known is not None and document is None:
        if known.how == GIVEN:
            return known
        document = known.id if known.how == DOCUMENT else None
    if document is not None and issuer.reads_documents:
        return KnownClient(document, how=DOCUMENT)
    if issuer.registration_endpoint is None:
        raise LoginNeededError(
            f"{sanitize(issuer.name)} does not let clients register by themselves: register one there, and give its client_id"
            + (", or the client_metadata_url of one" if issuer.reads_documents else "")
        )
    return None


def _given(name: str, secret: str | None, issuer: AuthorizationServer) -> KnownClient:
    return KnownClient(name, secret, NONE if secret is None else _method_with_secret(issuer.methods))


def _method_with_secret(methods: Sequence[str] | None) -> str:
    """Return how to show a secret; as RFC 8414 has it where the issuer does not say."""
    return next((method for method in _WITH_SECRET if method in (methods or ())), BASIC)


def can_reuse_registration(client: KnownClient, redirect: str, scopes: Sequence[str], now: float) -> bool:
    """Whether a client that has registered may be so once more: issuers hold it to what it has registered with."""
    return (
        client.how == REGISTERED
        and client.redirect == redirect
        and set(scopes) <= set(client.scopes)
        and (client.expires is None or now < client.expires)
    )


def registration(
    name: str, issuer: AuthorizationServer, redirect: str, scopes: Sequence[str], listed: Sequence[str]
) -> dict[str, Any]:
    """Return what a client registers with (RFC 7591, section 2).

    Args:
        name: What it is called for people.
        issuer: Where.
        redirect: Where people are sent back to.
        scopes: What it is about to ask for.
        listed: What the server lists besides. It may be asked for later, and some issuers hold clients to what they have named here.
    """
    methods = issuer.methods
    public = methods is None or NONE in methods or not set(methods) & set(_WITH_SECRET)
    asked = {
        "client_name": name,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": NONE if public else _method_with_secret(methods),
        "application_type": "native",
    }
    together = " ".join(_all(scopes, listed)) if scopes else ""
    return {**asked, "scope": together} if together else asked


def _all(*lists: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(each for one in lists for each in one))


def validate_registration(
    status: int, said: Mapping[str, Any], asked: Mapping[str, Any], issuer: AuthorizationServer
) -> KnownClient:
    """Read what an issuer answers to a client that registers.

    Raises:
        LoginRefusedError: It refuses.
        LoginError: It gives no name, or not the secret that it wants to be shown.
    """
    where = sanitize(issuer.name)
    if not succeeded(status) or "error" in said:
        code = sanitize(said.get("error", status))
        raise LoginRefusedError(
            f"{where} does not let this client register ({code}{said_why(said)}): register one there, and give its client_id",
            code,
        )
    name, secret = said.get("client_id"), said.get("client_secret")
    if not isinstance(name, str) or not name:
        raise LoginError(f"{where} has registered this client, and not said by what name")
    secret = secret if isinstance(secret, str) and secret else None
    method = said.get("token_endpoint_auth_method")
    if method not in {NONE, *_WITH_SECRET}:
        shows = secret is not None and (issuer.methods is None or set(issuer.methods) & set(_WITH_SECRET))
        method = _method_with_secret(issuer.methods) if shows else NONE
    if method != NONE and secret is None:
        raise LoginError(f"{where} wants this client to show a secret, and gives it none")
    return KnownClient(
        name,
        secret,
        method,
        REGISTERED,
        asked["redirect_uris"][0],
        tuple(asked.get("scope", "").split()),
        None if secret is None else _read_end(said.get("client_secret_expires_at")),
    )


def _read_end(stated: Any) -> float | None:
    """Return when a secret expires, if it does; never is written as 0."""
    number = isinstance(stated, int | float) and not isinstance(stated, bool)
    return float(stated) if number and 0 < stated < math.inf else None


def authenticated(client: KnownClient, form: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return a form for the token endpoint in which a client says who it is, and the header fields that go with it."""
    if client.method == BASIC and client.secret is not None:
        login = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
        return dict(form), {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
    said = {**form, "client_id": client.id}
    if client.method == POST and client.secret is not None:
        said["client_secret"] = client.secret
    return said, {}
