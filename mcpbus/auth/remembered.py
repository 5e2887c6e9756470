"""Tokens that were found good, so that a client that goes on with one costs no second look."""

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from mcpbus.auth.verifier import VerifiedToken

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
