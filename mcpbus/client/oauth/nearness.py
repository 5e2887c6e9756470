"""How near an address is to this machine: what a server elsewhere names may be no nearer than it is itself.

A server may name any address as that of its issuer, and a client would ask there, from behind a firewall, or on the very machine
(specification, "Security Best Practices", "Server-Side Request Forgery"). What is as far away as the server it could ask without us.
"""

import ipaddress
from enum import IntEnum
from typing import Final, TypeAlias

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
_LOW_BITS: Final = 2**32 - 1


class NetworkZone(IntEnum):
    """From far to near."""

    ANYWHERE = 0
    """Everybody reaches it."""
    NETWORK = 1
    """Who is in the same private network reaches it, or nobody knows who."""
    LINK = 2
    """Who is on the same link does, or on the same machine, as where a cloud keeps its credentials."""
    HERE = 3
    """It is this machine."""


def nearness(address: str) -> NetworkZone:
    """Return how near an IP address is.

    Raises:
        ValueError: It is none.
    """
    found = _inner(ipaddress.ip_address(address.partition("%")[0]))
    if found.is_loopback or found.is_unspecified:
        return NetworkZone.HERE
    if found.is_link_local or found.is_multicast:
        return NetworkZone.LINK
    return NetworkZone.ANYWHERE if found.is_global else NetworkZone.NETWORK


def _inner(address: _Address) -> _Address:
    """Return the IPv4 address that one of IPv6 stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & _LOW_BITS)
    return address.ipv4_mapped or address.sixtofour or address
