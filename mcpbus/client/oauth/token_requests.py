"""What is asked of a token endpoint, and what is believed of its answers (OAuth 2.1, sections 3.2 and 4; RFC 8707; RFC 7009)."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcpbus.client.oauth.discovery import AuthorizationServer
from mcpbus.client.oauth.errors import (
    IssuerUnavailableError,
    LoginError,
    LoginRefusedError,
    said_why,
    sanitize,
)
from mcpbus.client.oauth.http import succeeded
from mcpbus.client.oauth.login import Login, Tokens
from mcpbus.client.oauth.redirect import AuthorizationRequest
from mcpbus.client.oauth.scopes import read_scopes

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_NOT_NOW: Final = {408, 425, 429}
_EARLY_SECONDS: Final = 30.0
_EARLY_PART: Final = 0.1
"""How long before its end a token is renewed: so long, or that part of its life where it is short."""
_LONGEST_LIFE: Final = 10 * 365 * 24 * 3600.0

FORGOTTEN: Final = frozenset({"invalid_client", "unauthorized_client"})
"""The error codes with which an issuer reports that it does not know a client (RFC 6749, sections 4.1.2.1 and 5.2)."""
GONE: Final = FORGOTTEN | {"invalid_grant"}
"""With what an issuer says that a refresh token, or the client that has it, is no good any more."""


def code_token_request(code: str, request: AuthorizationRequest, resource: str) -> dict[str, str]:
    """Ask for the tokens that a code stands for."""
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": request.redirect,
        "code_verifier": request.verifier,
        "resource": resource,
    }


def refresh_request(refresh: str, resource: str) -> dict[str, str]:
    """Ask for a newer token."""
    return {"grant_type": "refresh_token", "refresh_token": refresh, "resource": resource}


def client_credentials_request(resource: str, scopes: Sequence[str]) -> dict[str, str]:
    """Ask for a token of the client's own."""
    form = {"grant_type": "client_credentials", "resource": resource}
    return {**form, "scope": " ".join(scopes)} if scopes else form


def revocation_request(login: Login) -> list[dict[str, str]]:
    """Ask to take back what was issued: first that with which more could be had."""
    tokens = login.tokens
    if tokens is None:
        return []
    refresh = [{"token": tokens.refresh, "token_type_hint": "refresh_token"}] if tokens.refresh else []
    return [*refresh, {"token": tokens.access, "token_type_hint": "access_token"}]


def validate_tokens(
    status: int,
    said: Mapping[str, Any],
    issuer: AuthorizationServer,
    now: float,
    before: Tokens | None = None,
) -> Tokens:
    """Read what a token endpoint answers.

    Args:
        status: The status.
        said: The JSON object; empty where there is none.
        issuer: Whose it is.
        now: The time, in seconds since the epoch.
        before: What is renewed: what is not said anew still holds.

    Raises:
        IssuerUnavailableError: It cannot answer now.
        LoginRefusedError: It refuses.
        LoginError: What it answers is no token that could be used.
    """
    where = sanitize(issuer.name)
    error = said.get("error")
    if error is not None:
        code = sanitize(error)
        if (
            status in _NOT_NOW
            or status >= 500
            or code in {"temporarily_unavailable", "server_error", "slow_down"}
        ):
            raise IssuerUnavailableError(f"{where} issues no token now ({code}{said_why(said)})")
        raise LoginRefusedError(f"{where} issues no token ({code}{said_why(said)})", code)
    if status in _NOT_NOW or status >= 500:
        raise IssuerUnavailableError(f"{where} issues no token now: it answered {status}")
    if not succeeded(status):
        raise LoginRefusedError(f"{where} issues no token: it answered {status}", str(status))
    access, kind = said.get("access_token"), said.get("token_type")
    if not isinstance(access, str) or not _TOKEN.fullmatch(access):
        raise LoginError(f"what {where} issues is no token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise LoginError(
            f"the token that {where} issues is of a type that is not known here: {sanitize(repr(kind))}"
        )
    life = _read_life(said.get("expires_in"))
    refresh, granted = said.get("refresh_token"), said.get("scope")
    kept = (None, None) if before is None else (before.refresh, before.granted)
    return Tokens(
        access,
        None if life is None else now + life,
        None if life is None else now + life - min(_EARLY_SECONDS, life * _EARLY_PART),
        refresh if isinstance(refresh, str) and refresh else kept[0],
        read_scopes(granted) if isinstance(granted, str) else kept[1],
    )


def _read_life(stated: Any) -> float | None:
    """Return for how many seconds a token is good; None where that is not said, or makes no sense. Some issuers write it as text."""
    try:
        life = (
            float(stated)
            if isinstance(stated, int | float | str) and not isinstance(stated, bool)
            else math.nan
        )
    except (ValueError, OverflowError):
        return None
    return life if 0 < life <= _LONGEST_LIFE else None
