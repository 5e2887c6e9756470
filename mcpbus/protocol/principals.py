"""Whose something is: the one rule by which sessions, parked calls, tasks and states that travel know their principal again.

While what is somebody's is in this process, so is the principal it was made for, and the two are compared by ``==``. What
comes back from elsewhere, out of a store or by way of a client, brings a digest of the principal's content instead: it is the
same in every process, and in none does it depend on a ``repr``, a hash or the order of a set.
"""

import enum
import hashlib
import logging
import os
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs
import msgspec

_log = logging.getLogger("mcpbus")

_UNKNOWN: Final = object()
_WRITTEN_OUT: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types whose ``repr`` is all of a value, the same in every process."""
_CONTAINERS: Final = frozenset({list, tuple, dict})
_SETS: Final = (set, frozenset)
_DEEPEST: Final = 32

_tokens: "WeakKeyDictionary[Any, bytes]" = WeakKeyDictionary()


def is_same(one: Any, other: Any) -> bool:
    """Whether two principals are one. If they cannot be compared they are not, and the log says why."""
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - the author's own code; nobody is let in by its failure
        kinds = type(one).__qualname__, type(other).__qualname__
        _log.exception("principals of type %s and %s cannot be compared, and are taken for two", *kinds)
        return False


class Owner:
    """The principal that something is bound to; see the module.

    Args:
        principal: Whom `authenticate` found.
    """

    __slots__ = ("_digest", "_principal")

    def __init__(self, principal: Any) -> None:
        self._principal = principal
        self._digest: bytes | None = None

    @classmethod
    def stored(cls, digest: bytes) -> "Owner":
        """Return the owner of whom this digest was kept."""
        owner = cls(_UNKNOWN)
        owner._digest = digest
        return owner

    @property
    def digest(self) -> bytes:
        """What is kept of it elsewhere."""
        if self._digest is None:
            self._digest = digest_of(self._principal)
        return self._digest

    def admits(self, principal: Any) -> bool:
        """Tell whether `principal` is the owner."""
        if self._principal is _UNKNOWN:
            return digest_of(principal) == self.digest
        return is_same(self._principal, principal)


def digest_of(principal: Any) -> bytes:
    """Return a digest of a principal's content: 32 bytes, equal for equal content of the same type, in every process.

    A principal that is compared by identity, or whose content cannot be written down, has one that nobody else has, for as
    long as the object lives; if it cannot be referred to weakly, not even that.
    """
    try:
        return hashlib.sha256(_write(principal, 0)).digest()
    except Exception:  # noqa: BLE001 - the author's own code, and there is another way
        fresh = os.urandom(32)
        try:
            return _tokens.setdefault(principal, fresh)
        except Exception:  # noqa: BLE001 - as above
            return fresh


def _write(value: Any, depth: int) -> bytes:
    """Write down what a value holds.

    Raises:
        TypeError: It is itself and nothing else, or too deep.
        Exception: It cannot be taken apart, and says so in its own way.
    """
    kind = type(value)
    if kind in _WRITTEN_OUT:
        return _join(kind, repr(value).encode())
    if depth > _DEEPEST:
        raise TypeError("it is too deep")
    if isinstance(value, enum.Enum):
        return _join(kind, value.name.encode())
    parts = [_write(part, depth + 1) for part in _take_apart(value)]
    if kind is dict or isinstance(value, _SETS):
        parts.sort()
    return _join(kind, *parts)


def _take_apart(value: Any) -> Iterable[Any]:
    """Return the parts of a value that are compared when it is."""
    kind = type(value)
    if kind is dict:
        value = value.items()
    if kind in _CONTAINERS or isinstance(value, _SETS):
        return list(value)
    if isinstance(value, type):
        return value.__module__, value.__qualname__
    names = _compared(kind)
    return _reduce(value) if names is None else [getattr(value, name) for name in names]


def _compared(kind: Any) -> Iterable[str] | None:
    """Return the names of the fields by which values of a type are compared; None if it has no fields.

    Raises:
        TypeError: They are compared by identity.
    """
    if kind.__eq__ is object.__eq__ or (issubclass(kind, msgspec.Struct) and not kind.__struct_config__.eq):
        raise TypeError("it is itself, and nothing else is")
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    if attrs.has(kind):
        return [field.name for field in attrs.fields(kind) if field.eq]
    return [field.name for field in fields(kind) if field.compare] if is_dataclass(kind) else None


def _reduce(value: Any) -> Iterable[Any]:
    """Return what a copy of a value would be made of, as `pickle` has it."""
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return (reduced,)
    make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    # A mapping's pairs have no order; that of a list's items is part of it.
    return make.__qualname__, arguments, state, list(items or ()), dict(pairs or ())


def _join(kind: type, *parts: bytes) -> bytes:
    """Put parts together so that no others give the same bytes."""
    named = f"{kind.__module__}.{kind.__qualname__}".encode()
    return b"".join([b"%d:%b" % (len(part), part) for part in (named, *parts)])
