"""Messages, as they are read: what is one to the letter in one pass, and all else by `unreadable.judge`.

Messages, as they are written: always one line of UTF-8 (rule J-31).

Raw JSON that an author or a client wrote may hold line breaks, but JSON admits a raw line break only *between* tokens, never inside a
string; so each one is replaced by a space where it is spliced in, which changes no value.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_request
from mcpbus.protocol.half_characters import replace_lone_surrogates
from mcpbus.protocol.json_faults import plain, with_place
from mcpbus.protocol.jsonrpc.invalid import not_json, validate_undecodable
from mcpbus.protocol.jsonrpc.messages import (
    NO_PARAMS,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    RequestId,
    Undecodable,
    envelopes,
)

MAX_BATCH: Final = 1_000
"""How many messages one array may hold. Each is answered, so that the answer may be many times as long as the array."""

_UNSET: Final = msgspec.UNSET
_BRACE: Final = ord("{")
_arrays = msgspec.json.Decoder(list[msgspec.Raw])


def decode(data: bytes | str) -> JsonRpcRequest | JsonRpcNotification | JsonRpcResponse:
    """Read one message.

    Args:
        data: one JSON object. An array is refused as one; where the revision has batches, `decode_batch` reads it.

    Raises:
        Undecodable: for anything that is not a message; never another exception.
    """
    try:
        # The raw members are skipped by the decoder without a look at their encoding, and text arrives with the same doubt.
        if not data.isascii():
            if isinstance(data, str):
                data = data.encode()
            else:
                data.decode()
        envelope = envelopes.decode(data)
    except (UnicodeError, msgspec.DecodeError, RecursionError):
        return validate_undecodable(data)
    if envelope.jsonrpc == "2.0":
        method, params, identity = envelope.method, envelope.params, envelope.id
        result, error = envelope.result, envelope.error
        if method is not _UNSET:
            # Params are an object (rule J-29).
            if (params is NO_PARAMS or memoryview(params)[0] == _BRACE) and result is error is _UNSET:
                return (
                    JsonRpcNotification(method, params)
                    if identity is _UNSET
                    else JsonRpcRequest(identity, method, params)
                )
        elif error is _UNSET:
            if result is not _UNSET and identity is not _UNSET:
                return JsonRpcResponse(identity, result)
        elif result is _UNSET:
            return JsonRpcResponse(None if identity is _UNSET else identity, None, error)
    return validate_undecodable(data)


def decode_batch(
    data: bytes | str,
) -> "list[JsonRpcRequest | JsonRpcNotification | JsonRpcResponse | Undecodable]":
    """Read an array of messages; what in it is none is given in its place as what `decode` would raise (rules J-23, J-26).

    Args:
        data: what `decode` has refused as an array.

    Raises:
        Undecodable: if the array is empty, longer than `MAX_BATCH`, or nested too deeply to be read.
    """
    elements = _split(data)
    if not elements:
        raise Undecodable(invalid_request("expected at least one message - at `$`"))
    if len(elements) > MAX_BATCH:
        raise Undecodable(invalid_request(f"a batch has at most {MAX_BATCH} messages, got {len(elements)}"))
    return [_decode_member(element) for element in elements]


def _split(data: bytes | str) -> list[bytes]:
    try:
        return [bytes(element) for element in _arrays.decode(data)]
    except RecursionError as fault:
        raise not_json(fault, data) from None
    except msgspec.DecodeError:  # there is half of a surrogate pair in one of them, or some
        text, mended = replace_lone_surrogates(data)
    elements, end = [], 0
    for element in map(bytes, _arrays.decode(mended)):
        start = mended.index(element, end)  # between them is nothing that one could begin with
        end = start + len(element)
        elements.append(text[start:end])
    return elements


def _decode_member(data: bytes) -> "JsonRpcRequest | JsonRpcNotification | JsonRpcResponse | Undecodable":
    try:
        return decode(data)
    except Undecodable as fault:
        # A new one: the traceback of a raised one refers to this frame, and so to itself. A thousand of these in each batch take hundreds of
        # megabytes until the garbage collector looks for them.
        return Undecodable(fault.error, fault.id, array=fault.array)


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
