"""Names of streams that tell, where several processes serve, which of them answers a request on it, and which request.

So whoever goes on with the session of a process that has ended can reply to what that had not answered, though nothing is kept of it.
"""

import base64
import binascii
import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from mcpbus.protocol.jsonrpc import RequestId, encode_id

_RANDOM_BYTES: Final = 12
_RANDOM_LETTERS: Final = 16
_LONGEST_ID: Final = 96

_decode_id: Callable[[bytes], RequestId] = msgspec.json.Decoder(RequestId).decode


def name_request(prefix: str, process: str, request: RequestId) -> str | None:
    """Return a name for the stream of a request; None if the request's id is too long to be in it.

    Args:
        prefix: With what it begins.
        process: Where the request runs.
        request: Its id.
    """
    told = base64.urlsafe_b64encode(encode_id(request)).rstrip(b"=").decode()
    if len(told) > _LONGEST_ID:
        return None
    return f"{prefix}{process}{secrets.token_urlsafe(_RANDOM_BYTES)}{told}"


def request_elsewhere(name: str, prefix: str, process: str) -> RequestId | None:
    """Return which request of another process is answered on a stream; None if it is of this one, or no such stream.

    Args:
        name: The stream's name.
        prefix: As for `name_request`.
        process: This one.
    """
    begin = len(prefix) + len(process)
    told = name[begin + _RANDOM_LETTERS :]
    if not name.startswith(prefix) or name[len(prefix) : begin] == process or not told:
        return None
    try:
        return _decode_id(base64.urlsafe_b64decode(told + "=" * (-len(told) % 4)))
    except (binascii.Error, UnicodeError, msgspec.DecodeError, RecursionError):
        return None
