"""How a watch names clients: never by what they authenticate with."""

import logging
from collections.abc import Callable
from typing import Any, Final

from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.principals import LOCAL, Peer, digest_of, is_digest
from mcpbus.protocol.printable import quoted

_log = logging.getLogger("mcpbus")

LONGEST: Final = 40
_MOST_NAMES: Final = 1000

NamePrincipal = Callable[[Any], str]


def session_name(session: Session) -> str:
    """Return the name of a session."""
    return f"session {session.short_id}"


def client_name(context: RequestContext) -> str:
    """Return the name and the version that a client states, cut short and made safe."""
    info = context.client_info
    parts = [quoted(info[key], LONGEST) for key in ("name", "version") if isinstance(info.get(key), str)]
    return " ".join(parts)


class PrincipalNames:
    """The names of principals.

    Args:
        given: The author's function for it; None for the class and a short digest.
    """

    def __init__(self, given: NamePrincipal | None) -> None:
        self._given = given
        self._names: dict[bytes, str] = {}

    def owner(self, owner: object) -> str | None:
        """Return the name of an owner: a principal, a digest of one, or a peer; None for None."""
        if owner is None or isinstance(owner, Peer) or is_digest(owner):
            return None if owner is None else str(owner)
        return self.name(owner, LOCAL)

    def name(self, principal: Any, peer: Peer) -> str:
        """Return the name of a principal, or of the peer where there is none. A fault of the author's function is logged."""
        if principal is None:
            return str(peer)
        digest = digest_of(principal)
        name = self._names.get(digest)
        if name is None:
            name = f"{type(principal).__qualname__} {digest.hex()[:8]}"
            try:
                if self._given is not None:
                    name = quoted(self._given(principal), LONGEST)
            except Exception:  # noqa: BLE001 - the author's code
                _log.exception("name_principal failed")
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[digest] = name
        return name
