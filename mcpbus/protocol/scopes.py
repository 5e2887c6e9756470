"""Scopes: the names of what a token allows (RFC 6749, section 3.3)."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")
_OFFLINE: Final = "offline_access"


def is_scope(text: str) -> bool:
    """Whether a text can be one."""
    return _SCOPE.fullmatch(text) is not None


def read_scopes(scopes: Any, owner: str) -> tuple[str, ...]:
    """Return scopes that somebody has written down, each once.

    Args:
        scopes: The scopes.
        owner: What they are written down for, for people.

    Raises:
        ValueError: One cannot be a scope; the message says what to write.
    """
    if isinstance(scopes, str) or not isinstance(scopes, Iterable):
        raise ValueError(f'{owner}: scopes are a list: write scopes=["files:read"]')  # noqa: TRY004 - said as the others are
    found = tuple(dict.fromkeys(scopes))
    for scope in found:
        if not isinstance(scope, str) or not is_scope(scope):
            raise ValueError(
                f"{owner}: {scope!r} is no scope: write visible ASCII without blanks and quotation marks"
            )
        if scope == _OFFLINE:
            raise ValueError(
                f"{owner}: {_OFFLINE} is between a client and its issuer, and nothing that a server needs"
            )
    return found


class Scopes:
    """Which scopes stand for which other ones.

    Args:
        implies: What each of the broader ones includes, as far as it says so itself.
    """

    def __init__(self, implies: Mapping[str, Iterable[str]]) -> None:
        self._implied = {scope: read_scopes(narrower, "implies") for scope, narrower in implies.items()}

    def missing(self, needed: Iterable[str], granted: frozenset[str]) -> bool:
        """Tell whether there is one among those that are needed which is neither granted nor implied by what is."""
        return not granted.issuperset(needed) and not self._closure(granted).issuperset(needed)

    def _closure(self, granted: Iterable[str]) -> set[str]:
        found: set[str] = set()
        left = [*granted]
        while left:
            scope = left.pop()
            if scope not in found:
                found.add(scope)
                left += self._implied.get(scope, ())
        return found
