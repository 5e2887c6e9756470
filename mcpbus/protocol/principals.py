"""Equality of principals: the one rule for sessions, suspended calls, tasks, sealed states, caches and upstream connections.

Two principals are the same if they are one object, or if their digests are equal. A digest covers the class of a principal and its
content, so it is the same in every process; see `mcpbus.protocol.content` for the classes whose content is known. A principal
of any other class is equal to itself alone. Such a class can define ``mcpbus_key``.
"""

import hashlib
import logging
import os
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet, ref

from mcpbus.protocol.content import KEY, UnknownContentError, has_same_content, write_content

_log = logging.getLogger("mcpbus")

_UNKNOWN: Final = object()

_single: dict[int, tuple["ref[Any]", bytes]] = {}
"""The digests of principals that are equal to themselves alone, by id, as long as they live."""
_reported: "WeakSet[type]" = WeakSet()


def is_same(one: Any, other: Any) -> bool:
    """Return whether two principals are the same."""
    if one is other:
        return True
    try:
        return has_same_content(one, other)
    except Exception:  # noqa: BLE001 - the log gets it with the digest
        return digest_of(one) == digest_of(other)


class BoundPrincipal:
    """The principal that owns something, or its digest.

    Args:
        principal: The principal.
    """

    __slots__ = ("_digest", "_principal")

    def __init__(self, principal: Any) -> None:
        self._principal = principal
        self._digest: bytes | None = None

    @classmethod
    def stored(cls, digest: bytes) -> "BoundPrincipal":
        """Return the owner with a digest that was stored."""
        owner = cls(_UNKNOWN)
        owner._digest = digest
        return owner

    @property
    def digest(self) -> bytes:
        """Its digest, to be stored."""
        if self._digest is None:
            self._digest = digest_of(self._principal)
        return self._digest

    def admits(self, principal: Any) -> bool:
        """Return whether `principal` is the owner."""
        return principal is self._principal or digest_of(principal) == self.digest


def digest_of(principal: Any) -> bytes:
    """Return the digest of a principal: 32 bytes, equal for equal content of the same class, in every process.

    The digest of a principal with unknown content is random. It stays the same as long as the object lives. An object without
    weak references gets another one each time.
    """
    try:
        return hashlib.sha256(write_content(principal)).digest()
    except UnknownContentError as unknown:
        _report(principal, unknown)
    except Exception:  # noqa: BLE001 - the author's own code
        _log.exception("the content of a principal of type %s cannot be read", type(principal).__qualname__)
    return _digest_of_one(principal)


def content_digest(value: Any) -> bytes | None:
    """Return a digest of any value as `digest_of` does; None if its content is not known."""
    try:
        return hashlib.sha256(write_content(value)).digest()
    except Exception:  # noqa: BLE001 - the author's own code
        return None


def _digest_of_one(principal: Any) -> bytes:
    known = _single.get(id(principal))
    if known is not None and known[0]() is principal:
        return known[1]
    digest, name = os.urandom(32), id(principal)
    with suppress(TypeError):  # it has no weak references
        _single[name] = ref(principal, lambda _: _single.pop(name, None)), digest
    return digest


def _report(principal: Any, unknown: UnknownContentError) -> None:
    """Log once that a class has to state its content."""
    kind = unknown.kind
    if kind is None or kind in _reported:
        return
    _reported.add(kind)
    _log.warning(
        "each principal of type %s counts as another one: %s; define %s in %s, a property or a method that returns a str or another "
        "plain value",
        type(principal).__qualname__,
        unknown,
        KEY,
        kind.__qualname__,
    )
