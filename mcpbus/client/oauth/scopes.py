"""What a client asks its issuer to allow (specification, "Scope Selection Strategy", "Step-Up Authorization Flow", "Refresh Tokens")."""

from collections.abc import Iterable
from typing import Final

from mcpbus.protocol.scopes import is_scope

OFFLINE: Final = "offline_access"
"""With what some issuers grant tokens that outlive the person's presence."""


def read_scopes(text: str | None) -> tuple[str, ...]:
    """Return the scopes of a text in which spaces separate them; what is none of RFC 6749, section 3.3, is left out."""
    return tuple(dict.fromkeys(each for each in (text or "").split() if is_scope(each)))


def choose_scopes(
    challenged: Iterable[str],
    listed: Iterable[str] | None,
    *,
    given: Iterable[str] = (),
    before: Iterable[str] = (),
    offered: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return what to ask for; nothing, to have the issuer decide.

    Args:
        challenged: What the server's challenge names.
        listed: What the server's metadata lists, which counts where neither the challenge nor the user names any.
        given: What the user names.
        before: What was asked for at the last login, which is not to be lost.
        offered: What the issuer can allow. Of that, `OFFLINE` is asked for besides all else, but not alone: that would take
            away what the issuer allows by default.
    """
    wanted = [*given, *challenged] or [*(listed or ())]
    wanted = [*before, *wanted]
    if wanted and OFFLINE in offered:
        wanted.append(OFFLINE)
    return tuple(dict.fromkeys(wanted))
