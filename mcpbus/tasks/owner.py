"""Whose a task is: the check of each access (rule TX-16)."""

import hashlib
import os
from typing import Any, Final

import msgspec

_UNKNOWN: Final = object()


class Owner:
    """The principal behind the request that began a task.

    Compared as it is while the process lives; afterwards by a digest of its content. A principal whose content
    cannot be encoded has a digest that nobody matches, so its tasks are nobody's after a restart.

    Attributes:
        digest: What a store keeps of it.
    """

    __slots__ = ("_principal", "digest")

    def __init__(self, principal: Any, digest: bytes | None = None) -> None:
        self._principal = principal
        self.digest = _digest(principal) if digest is None else digest

    @classmethod
    def stored(cls, digest: bytes) -> "Owner":
        """Return the owner of whom a store has this digest."""
        return cls(_UNKNOWN, digest)

    def admits(self, principal: Any) -> bool:
        """Tell whether `principal` is the owner."""
        if self._principal is _UNKNOWN:
            return _digest(principal) == self.digest
        return bool(self._principal == principal)


def _digest(principal: Any) -> bytes:
    kind = type(principal)
    try:
        content = msgspec.json.encode(principal, order="deterministic")
    except (TypeError, ValueError, RecursionError):
        return os.urandom(32)
    return hashlib.sha256(f"{kind.__module__}.{kind.__qualname__} ".encode() + content).digest()
