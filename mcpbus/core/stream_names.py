"""Names of streams that tell, where several processes serve, which of them answers a request on it, and which request.

So whoever goes on with the session of a process that has ended can reply to what that had not answered, though nothing is kept of it.
They rest on the session, too: a client that comes back by the event of another one of its sessions is owed no reply in this one.
"""

import base64
import binascii
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import msgspec

from mcpbus.protocol.jsonrpc import RequestId, encode_id

_RANDOM_BYTES: Final = 9
_MARK_BYTES: Final = 3
"""Of the session: for who confuses two of them, and not for who makes names up, to whom a reply tells nothing new."""
_LETTERS: Final = 16
"""Those of both."""
_LONGEST_ID: Final = 96

_decode_id: Callable[[bytes], RequestId] = msgspec.json.Decoder(RequestId).decode


def name_request(prefix: str, process: str, session: str, request: RequestId) -> str | None:
    """Return a name for the stream of a request; None if the request's id is too long to be in it.

    Args:
        prefix: With what it begins.
        process: Where the request runs.
        session: The session that it belongs to.
        request: Its id.
    """
    told = base64.urlsafe_b64encode(encode_id(request)).rstrip(b"=").decode()
    if len(told) > _LONGEST_ID:
        return None
    random = secrets.token_bytes(_RANDOM_BYTES)
    letters = base64.urlsafe_b64encode(random + _mark(random, session)).decode()
    return f"{prefix}{process}{letters}{told}"


def request_elsewhere(name: str, prefix: str, process: str, session: str) -> RequestId | None:
    """Return which request of another process is answered on a stream; None if it is of this one, or no such stream of this session.

    Args:
        name: The stream's name.
        prefix: As for `name_request`.
        process: This one.
        session: The session whose client names it.
    """
    begin = len(prefix) + len(process)
    letters, told = name[begin : begin + _LETTERS], name[begin + _LETTERS :]
    if not name.startswith(prefix) or name[len(prefix) : begin] == process or not told:
        return None
    try:
        both = base64.urlsafe_b64decode(letters)
        if both[_RANDOM_BYTES:] != _mark(both[:_RANDOM_BYTES], session):
            return None
        return _decode_id(base64.urlsafe_b64decode(told + "=" * (-len(told) % 4)))
    except (binascii.Error, UnicodeError, msgspec.DecodeError, RecursionError):
        return None


def _mark(random: bytes, session: str) -> bytes:
    return sha256(random + session.encode()).digest()[:_MARK_BYTES]
