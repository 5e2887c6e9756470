"""Equality of principals: the one rule for sessions, suspended calls, tasks, sealed states, caches and upstream connections.

Two principals are the same if they are one object, or if their digests are equal. A digest covers the class of a principal and its
content, so it is the same in every process; see `mcpbus.protocol.content` for the classes whose content is known. A principal
of any other class is equal to itself alone. Such a class can define ``mcpbus_key``.

To whom what a bus holds is counted: the principal, or where nobody is authenticated the address that a client connects from.
"""

import hashlib
import logging
import os
from collections.abc import Hashable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any, Final
from weakref import WeakSet, ref

import attrs
import msgspec

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


_NETWORK_BITS: Final = 64
"""Of an IPv6 address: what one household or machine is given, which may use all addresses in it (RFC 6177)."""


@attrs.frozen
class Peer:
    """From where a client connects.

    Attributes:
        name: What all its connections have in common: an IPv4 address, or an IPv6 network of 64 bits.
        address: The address itself; None of a client on this machine that has none.
    """

    name: str
    address: IPv4Address | IPv6Address | None = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def at(cls, host: str | None) -> "Peer":
        """Return the peer with an address, as sockets give it; one that is none is that of a client on this machine."""
        return LOCAL if host is None else _peer_at(host)

    def __str__(self) -> str:
        return self.name


IN_PROCESS: Final = Peer("the process itself")
STDIO: Final = Peer("standard input")
LOCAL: Final = Peer("a local client")


@lru_cache(maxsize=1024)
def _peer_at(host: str) -> Peer:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return LOCAL
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return Peer(str(IPv6Network((address, _NETWORK_BITS), strict=False)), address)
        address = address.ipv4_mapped
    return Peer(str(address), address)


def owner_of(principal: Any, peer: Peer) -> Hashable:
    """Return what tells the owners of things apart.

    Args:
        principal: Whom `authenticate` found; None where it found nobody.
        peer: From where they came.

    Returns:
        The principal, if it can be told from others by its hash; otherwise its content, if it is data; otherwise the peer.
    """
    if principal is None:
        return peer
    try:
        # Where the hash is that of the object alone, each request would bring another owner.
        if hash(principal) != object.__hash__(principal):
            return principal  # type: ignore[no-any-return]  # it has a hash
    except Exception:  # noqa: BLE001, S110 - the author's own code, and there are other ways
        pass
    try:
        content = msgspec.json.encode(principal, order="deterministic")
    except Exception:  # noqa: BLE001 - as above
        return peer
    return _Content(type(principal).__qualname__, sha256(content).hexdigest())


def owner_stored(digest: bytes) -> Hashable:
    """Return the owner of what was stored by an earlier process, of whom no more is known than this."""
    return _Content("somebody before the restart", digest.hex())


def is_digest(owner: object) -> bool:
    """Whether an owner is the digest of a principal, which is safe to show."""
    return isinstance(owner, _Content)


class _Content(msgspec.Struct, frozen=True):
    """A principal that is told from others by what it holds, which is nobody's to read."""

    kind: str
    digest: str

    def __str__(self) -> str:
        return f"{self.kind} {self.digest[:8]}"
