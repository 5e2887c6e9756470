"""To whom what a bus holds is counted: the principal, or where nobody is authenticated the address that a client connects from."""

from collections.abc import Hashable
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

import attrs
import msgspec

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


class _Content(msgspec.Struct, frozen=True):
    """A principal that is told from others by what it holds, which is nobody's to read."""

    kind: str
    digest: str

    def __str__(self) -> str:
        return f"{self.kind} {self.digest[:8]}"
