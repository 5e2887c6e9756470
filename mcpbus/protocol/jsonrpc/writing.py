"""Messages, as they are written: always one line of UTF-8 (rule J-31).

Raw JSON that an author or a client wrote may hold line breaks, but JSON admits a raw line break only *between* tokens, never inside a
string; so each one is replaced by a space where it is spliced in, which changes no value.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.json_faults import plain, with_place
from mcpbus.protocol.jsonrpc.messages import RequestId

encode_value = msgspec.json.Encoder(enc_hook=plain).encode
"""Any value that is JSON, as JSON. What is `msgspec.Raw` in it may hold line breaks; see `single_line`."""
encode_id: Final[Callable[[RequestId], bytes]] = encode_value
"""An id, as JSON."""


def single_line(text: bytes) -> bytes:
    """The same JSON without line breaks, which JSON admits between tokens only."""
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


def encode_result(id: RequestId, result: bytes) -> bytes:  # noqa: A002 - the protocol's word
    """A successful answer around an already encoded result object."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_id(id), single_line(result))


def encode_error(id: RequestId | None, error: ProtocolError) -> bytes:  # noqa: A002 - the protocol's word
    """An error answer, without an id member if the request's id could not be read (rule J-9)."""
    identity = b"" if id is None else b'"id":%b,' % encode_id(id)
    data = b"" if error.encoded_data is None else b',"data":%b' % single_line(bytes(error.encoded_data))
    message = encode_value(error.message)
    return b'{"jsonrpc":"2.0",%b"error":{"code":%d,"message":%b%b}}' % (identity, error.code, message, data)


def encode_notification(method: str, params: object | None = None) -> bytes:
    """A notification.

    Args:
        method: its name.
        params: what msgspec writes as a JSON object (`msgspec.Raw` included); None leaves the member out.

    Raises:
        TypeError: if `params` holds what JSON cannot.
        ValueError: if its text is not Unicode.
    """
    return b'{"jsonrpc":"2.0","method":%b%b}' % (encode_value(method), _encode_params(params))


def encode_request(id: RequestId, method: str, params: object | None = None) -> bytes:  # noqa: A002 - the protocol's word
    """A request of ours to the peer; as `encode_notification`, with an id from the sender's own space (rule J-6)."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b%b}' % (
        encode_id(id),
        encode_value(method),
        _encode_params(params),
    )


def _encode_params(params: object | None) -> bytes:
    if params is None:
        return b""
    try:
        return b',"params":%b' % single_line(encode_value(params))
    except TypeError as error:
        raise with_place(error, params, encode_value, "params") from None
