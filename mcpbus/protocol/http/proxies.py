"""Whom a proxy forwards for: what Forwarded (RFC 7239) or X-Forwarded-For says, believed of nobody but proxies that are known."""

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from mcpbus.protocol.bounded_cache import BoundedCache
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.principals import Peer

Network: TypeAlias = IPv4Network | IPv6Network
Address: TypeAlias = IPv4Address | IPv6Address

UNIX: Final = "unix"
"""Stands for proxies that connect over a Unix socket, and have no address."""

_MOST_HOPS: Final = 16
_ELEMENTS: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.?)*+"?)+')
_FOR: Final = re.compile(r'(?:^|;)[ \t]*for=(?:"([^"\\]*)"|([^";,\s]+))[ \t]*(?=;|$)', re.IGNORECASE)
_NODE: Final = re.compile(
    r"\[(?P<six>[0-9A-Fa-f:.]+)\](?::\w+)?|(?P<four>[0-9.]+)(?::\w+)?|(?P<bare>[0-9A-Fa-f:.]+)"
)


def read_network(text: str) -> Network | None:
    """Read an address or a network of proxies; None for `UNIX`.

    Raises:
        ValueError: It is neither.
    """
    return None if text == UNIX else ip_network(text, strict=False)


class Proxies:
    """The proxies of one endpoint.

    Args:
        trusted: Their addresses and networks, and perhaps `UNIX`.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._networks = [network for name in trusted if (network := read_network(name)) is not None]
        self._unix = UNIX in trusted
        self._remembered = BoundedCache[object, Peer]()

    def client(self, peer: Peer, headers: Headers) -> Peer:
        """Return whom a peer forwards for: the last one in the chain that is no known proxy.

        That is the peer itself if it is not known, or if what it says cannot be read.
        """
        if not self._trusts(peer):
            return peer
        forwarded, old = headers.raw(b"forwarded"), headers.raw(b"x-forwarded-for")
        # A proxy writes one of them, and may let pass what its client wrote into the other.
        if (forwarded is None) is (old is None):
            return peer
        key = (peer, peer.address, forwarded, old)
        known = self._remembered.get(key)
        if known is None:
            hops = _read_old(headers) if forwarded is None else _read_forwarded(headers)
            known = self._find(peer, hops)
            self._remembered.keep(key, known, len(repr(forwarded or old)))
        return known

    def _find(self, peer: Peer, hops: Iterator[Address | None]) -> Peer:
        found = peer
        for count, hop in enumerate(hops):
            if hop is None or count == _MOST_HOPS:
                return peer
            found = Peer.at(str(hop))
            if not self._trusts(found):
                break
        return found

    def _trusts(self, peer: Peer) -> bool:
        address = peer.address
        return self._unix if address is None else any(address in network for network in self._networks)


def _read_old(headers: Headers) -> Iterator[Address | None]:
    """Read X-Forwarded-For, from the last hop to the first; None for what is no address."""
    for line in reversed(headers.all(b"x-forwarded-for")):
        for node in reversed(line.split(",")):
            yield _read_node(node.strip())


def _read_forwarded(headers: Headers) -> Iterator[Address | None]:
    """Read Forwarded, likewise."""
    for line in reversed(headers.all(b"forwarded")):
        for element in reversed(_ELEMENTS.findall(line)):
            nodes = _FOR.findall(element.strip())
            yield _read_node(nodes[0][0] or nodes[0][1]) if len(nodes) == 1 else None


def _read_node(text: str) -> Address | None:
    node = _NODE.fullmatch(text)
    try:
        return None if node is None else ip_address(node["six"] or node["four"] or node["bare"])
    except ValueError:
        return None
