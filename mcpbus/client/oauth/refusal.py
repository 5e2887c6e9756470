"""What a server's answer says of the token that came with the request, or was missing (RFC 6750, section 3)."""

from collections.abc import Sequence
from typing import Final

import attrs

from mcpbus.client.oauth.errors import redact_secrets
from mcpbus.client.oauth.scopes import read_scopes
from mcpbus.protocol.http.challenges import Challenge, read_challenges

_BEARER: Final = "bearer"


@attrs.frozen
class TokenChallenge:
    """A request was refused for its token.

    Attributes:
        token: The token; None if there was none.
        too_little: Whether it does not allow enough, rather than being no good.
        place: Where the server says that its metadata is.
        scopes: What the token has to allow.
        why: What the server says of it, for people.
    """

    token: str | None = attrs.field(repr=False)
    too_little: bool
    place: str | None = None
    scopes: tuple[str, ...] = ()
    why: str = ""


def read_refusal(status: int, fields: Sequence[str], token: str | None) -> TokenChallenge | None:
    """Tell whether another token would help; None if it would not, as far as one can know.

    Args:
        status: That of the answer.
        fields: Its fields WWW-Authenticate.
        token: What the request came with.
    """
    if status not in {401, 403}:
        return None
    mine = [each for each in read_challenges(fields) if each.scheme == _BEARER]
    challenge = next(
        (each for each in mine if "resource_metadata" in each.parameters), mine[0] if mine else None
    )
    if status == 403:
        wants_more = min(
            (each for each in mine if _asks_for_scopes(each)), key=_leaves_error_out, default=None
        )
        # A request without a token is refused for the lack of one, whatever the status.
        return None if wants_more is None else _refusal(wants_more, token, too_little=token is not None)
    if challenge is None:
        # Servers leave the field out, and a proxy in front of one writes Negotiate or Basic of its own. The metadata tells.
        return TokenChallenge(token, too_little=False)
    return _refusal(challenge, token, too_little=False)


def _asks_for_scopes(challenge: Challenge) -> bool:
    """Whether a challenge with 403 asks for more scopes. Some servers name the scopes and leave the error out."""
    said = challenge.parameters
    if _leaves_error_out(challenge):
        return bool(read_scopes(said.get("scope")))
    return said["error"] == "insufficient_scope"


def _leaves_error_out(challenge: Challenge) -> bool:
    return "error" not in challenge.parameters


def _refusal(challenge: Challenge, token: str | None, *, too_little: bool) -> TokenChallenge:
    said = challenge.parameters
    why = said.get("error_description") or said.get("error") or ""
    why = redact_secrets(why, token)
    return TokenChallenge(
        token, too_little, said.get("resource_metadata"), read_scopes(said.get("scope")), why
    )
