"""Heads of requests on their way to another process, each of which is written and read once, as long as it comes again."""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import attrs

from mcpbus.cluster.messages import Fields, ForwardedHead, FrameError, decode_head, encode
from mcpbus.cluster.remote_request import ClusterServedEndpoint
from mcpbus.core.fairness import Pace
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.principals import Peer

_MOST: Final = 2048
"""How many are remembered."""
_LONGEST: Final = 2048
"""Bytes of one that is."""

K = TypeVar("K")
V = TypeVar("V")


class _Remembered(dict[K, V], Generic[K, V]):
    """What is remembered: all is forgotten where it would be too much."""

    def remember(self, key: K, value: V) -> None:
        """Remember something."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = value


@attrs.frozen
class KnownHead:
    """A head that has come over a link.

    Attributes:
        endpoint: Who serves its requests.
        head: The head.
        cleared: See `Endpoint.is_head_valid`.
        pace: How long it takes to serve its requests.
    """

    endpoint: ClusterServedEndpoint
    head: RequestHead
    cleared: bool
    pace: Pace = attrs.field(factory=Pace)


class ForwardedHeads:
    """Writes and reads heads.

    Args:
        endpoints: What those that come may be for.
    """

    def __init__(self, endpoints: Sequence[ClusterServedEndpoint]) -> None:
        self._endpoints = endpoints
        self._written: _Remembered[tuple[int, int], tuple[RequestHead, bytes]] = _Remembered()
        self._addresses: _Remembered[int, tuple[Peer, str]] = _Remembered()
        self._read: _Remembered[bytes, KnownHead] = _Remembered()

    def write(self, endpoint: int, head: RequestHead) -> bytes:
        """Return a head as it is sent.

        Args:
            endpoint: Which of the endpoints it is for.
            head: The head; who reads HTTP has one for all requests that have the same.
        """
        key = endpoint, id(head)
        written = self._written.get(key)
        if written is not None:
            return written[1]
        fields: Fields = []
        for name in head.headers:
            raw = head.headers.raw(name.encode("latin-1"))
            values = [raw] if isinstance(raw, bytes) else raw or ()
            fields.extend((name.encode("latin-1"), value) for value in values)
        data = encode(ForwardedHead(endpoint, head.verb, head.path, head.query, head.root, fields))
        if len(data) <= _LONGEST:
            self._written.remember(key, (head, data))  # which keeps the head, so that no other one has its id
        return data

    def address(self, peer: Peer) -> str | None:
        """Return a peer's address as it is sent; all requests of a connection have the same peer."""
        if peer.address is None:
            return None
        written = self._addresses.get(id(peer))
        if written is None:
            written = peer, str(peer.address)
            self._addresses.remember(id(peer), written)
        return written[1]

    def read(self, data: bytes) -> KnownHead:
        """Return a head that has come.

        Raises:
            FrameError: There is no such endpoint.
        """
        known = self._read.get(data)
        if known is None:
            said = decode_head(data)
            if said.endpoint >= len(self._endpoints):
                raise FrameError(f"there is no endpoint {said.endpoint}")
            endpoint = self._endpoints[said.endpoint]
            head = RequestHead(said.verb, said.path, Headers(said.fields), said.query, said.root)
            known = KnownHead(endpoint, head, endpoint.is_head_valid(head))
            if len(data) <= _LONGEST:
                self._read.remember(data, known)
        return known
