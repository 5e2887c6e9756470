"""Who is behind a request, as its token says."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from mcpbus.protocol.keywords import explained

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
"""What most claims are, of which nothing can be changed."""


def _freeze(value: Any) -> Any:
    if type(value) is dict or isinstance(value, Mapping):
        if _PLAIN.issuperset(map(type, value.values())):
            return MappingProxyType({**value})
        return MappingProxyType(
            {key: item if type(item) in _PLAIN else _freeze(item) for key, item in value.items()}
        )
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value


def _names(scopes: Iterable[str]) -> frozenset[str]:
    return frozenset(scopes.split() if isinstance(scopes, str) else scopes)


@explained
@attrs.frozen(cache_hash=True)  # what is counted to somebody is looked up by it, for each of their requests
class Principal:
    """Somebody for whom an issuer vouches, and the program that acts for them.

    Two are the same if issuer, subject and client are; what their tokens allow may differ, and is no part of who they are.

    Attributes:
        issuer: Who vouches; identifiers of subjects and clients are its own, and may mean others elsewhere.
        subject: Who it is, or for whom somebody acts.
        client: The program that acts for them.
        scopes: What the token allows.
        claims: All that the issuer says. Nobody can change it: requests with the same token share it.
        expires: When the token does, in seconds since the epoch; None if that is not known.
    """

    issuer: str
    subject: str
    client: str
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=_names, eq=False)
    claims: Mapping[str, Any] = attrs.field(factory=dict, converter=_freeze, eq=False, repr=False)
    expires: float | None = attrs.field(default=None, eq=False)

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"
