"""The opening handshake over HTTP/1.1, from the server's end (RFC 6455, section 4.2). No input or output here."""

import base64
import binascii
import hashlib
from typing import Final

import attrs

from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, refusal
from mcpbus.serving.http1.encoder import encode_head

_VERSION: Final = "13"
_KEY_BYTES: Final = 16
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_UPGRADED: Final = b"upgrade: websocket\r\nconnection: Upgrade\r\n"


@attrs.frozen
class Upgrade:
    """What a client asks for.

    Attributes:
        key: Proves that the answer is one to this request.
        subprotocols: Those that it offers.
    """

    key: bytes
    subprotocols: tuple[str, ...]

    def encode_accept(self, subprotocol: str | None) -> bytes:
        """The answer that accepts it.

        Args:
            subprotocol: The one that is selected, if there is one.
        """
        # Not for security: whoever answers so has read this very request, and is no cache that plays an old answer back.
        token = base64.b64encode(hashlib.sha1(self.key + _GUID, usedforsecurity=False).digest())
        fields = [(b"sec-websocket-accept", token)]
        if subprotocol is not None:
            fields.append((b"sec-websocket-protocol", subprotocol.encode("ascii")))
        return encode_head(101, fields, _UPGRADED)


def read_upgrade(head: RequestHead) -> Upgrade | HttpResponse:
    """Read a request to upgrade, whose `Upgrade` and `Connection` were looked at already.

    Returns:
        What it asks for; or what it is refused with.
    """
    refused = validate_version(head)
    if refused is not None:
        return refused
    key = head.headers.raw(b"sec-websocket-key")
    if not isinstance(key, bytes) or not _is_key(key.strip(b" \t")):
        fault = invalid_request(f"Sec-WebSocket-Key must be {_KEY_BYTES} bytes in Base64, given once")
        return refusal(400, fault)
    return Upgrade(key.strip(b" \t"), offered_subprotocols(head))


def validate_version(head: RequestHead) -> HttpResponse | None:
    """Return why a request for a WebSocket is refused, if it is for another version of the protocol."""
    if head.headers.get(b"sec-websocket-version") == _VERSION:
        return None
    fault = invalid_request(f"Sec-WebSocket-Version must be {_VERSION}")
    return refusal(426, fault, None, (b"sec-websocket-version", _VERSION.encode()))


def offered_subprotocols(head: RequestHead) -> tuple[str, ...]:
    """Return the subprotocols that a request offers."""
    offered = head.headers.get(b"sec-websocket-protocol", "").split(",")
    return tuple(name.strip(" \t") for name in offered if name.strip(" \t"))


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == _KEY_BYTES
    except binascii.Error:
        return False
