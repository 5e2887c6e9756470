"""Messages of a client, as they are written, and how long those of a server may be."""

from typing import Final

import msgspec

from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import (
    Notification,
    Request,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

MOST_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""How long one message of a server's may be."""


def encode_message(message: Request | Notification | Response) -> bytes:
    """Write a message on one line, without its end."""
    if isinstance(message, Request):
        return encode_request(message.id, message.method, message.params)
    if isinstance(message, Notification):
        return encode_notification(message.method, message.params)
    if message.id is not None and message.result is not None:
        return encode_result(message.id, bytes(message.result))
    error = message.error
    assert error is not None  # noqa: S101 - one of the two is there
    data = None if error.data is msgspec.UNSET else error.data
    return encode_error(message.id, ProtocolError(error.code, error.message, data))
