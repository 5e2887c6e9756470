"""Messages of a client, as they are written, and how long those of a server may be."""

from typing import Any, Final

import msgspec

from mcpbus.client.errors import MalformedAnswerError
from mcpbus.client.pending import weight_fault
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.json_faults import find_half, with_place
from mcpbus.protocol.jsonrpc import (
    ErrorObject,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

MOST_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one message from a server: each pass over a message of this size takes up to 20 ms."""


_encode: Final = msgspec.json.Encoder().encode


def check_message(method: Any, params: Any) -> None:
    """Refuse what is no method with its params, if it has any: in the same process nobody else looks at their types.

    Raises:
        TypeError: One is of another type.
    """
    if not isinstance(method, str):
        raise TypeError(f"a method is a text, not {method!r}")
    if params is not None and not isinstance(params, dict):
        raise TypeError(f"{method!a}: params is a dict, not {params!r}")


def encode_params(method: str, params: Any) -> msgspec.Raw:
    """Write what is sent with a method.

    Raises:
        TypeError: It holds what has no JSON form.
        ValueError: It, or the method, has half of a surrogate pair, which is no Unicode.
    """
    try:
        if not method.isascii():
            method.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{method!a} cannot be sent: {find_half(method, 'method') or error}") from None
    return _written(f"{method!a}", params, "params")


def encode_answer(method: str, answer: Any) -> msgspec.Raw:
    """Write what a client answers when it is asked something; raises what `encode_params` does."""
    return _written(f"what on_input_request answers to {method!a}", answer, "answer")


def _written(owner: str, value: Any, name: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(_encode(value))
    except UnicodeEncodeError as error:
        raise ValueError(f"{owner} cannot be sent: {find_half(value, name) or error}") from None
    except TypeError as error:
        raise TypeError(f"{owner} cannot be sent: {with_place(error, value, _encode, name)}") from None


def unreadable(why: str) -> MalformedAnswerError:
    """Return what an answer is to who waits for it, which nobody can read."""
    return MalformedAnswerError(f"the server's answer cannot be read: {why}")


_MOST_ERROR_LETTERS: Final = 16 * 1024
"""Letters of the message of an error that are kept: it is for people, and an error is passed on in many places."""


def read_error(error: ErrorObject) -> Exception:
    """Return what a server answers as it is raised; it may have data that is JSON, and yet cannot be read."""
    if error.data is not msgspec.UNSET and (heavy := weight_fault(error.data)) is not None:
        return unreadable(f"the data of an error {heavy}")
    try:
        data = None if error.data is msgspec.UNSET else msgspec.json.decode(error.data)
    except (msgspec.DecodeError, RecursionError) as fault:
        return unreadable(str(fault))
    text = error.message
    if len(text) > _MOST_ERROR_LETTERS:
        text = f"{text[:_MOST_ERROR_LETTERS]}... ({len(text):,} letters)"
    return ProtocolError(error.code, text, data)


def encode_message(message: JsonRpcRequest | JsonRpcNotification | JsonRpcResponse) -> bytes:
    """Write a message on one line, without its end."""
    if isinstance(message, JsonRpcRequest):
        return encode_request(message.id, message.method, message.params)
    if isinstance(message, JsonRpcNotification):
        return encode_notification(message.method, message.params)
    if message.id is not None and message.result is not None:
        return encode_result(message.id, bytes(message.result))
    error = message.error
    assert error is not None  # noqa: S101 - one of the two is there
    data = None if error.data is msgspec.UNSET else error.data
    return encode_error(message.id, ProtocolError(error.code, error.message, data))
