"""The seam for principals: who is behind an HTTP request.

``Server(authenticate=...)`` takes an async function of the request's `Head`. What it returns is the principal:
a text, or any value that is compared by what it holds. A session may be used by the principal that opened it, and by
nobody else; so may all else that is somebody's, see `mcpbus.protocol.principals`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from mcpbus.protocol.http.messages import Head

Authenticate = Callable[[Head], Awaitable[Any]]


class Unauthorized(Exception):  # noqa: N818 - HTTP's own word
    """Raised by `authenticate` to refuse a request.

    Args:
        challenge: The value of the WWW-Authenticate header, such as ``Bearer`` (RFC 9110, section 11.6.1).
        status: 401 for who has not said who it is, 403 for who may not.
    """

    def __init__(self, challenge: str = "Bearer", *, status: int = 401) -> None:
        super().__init__(challenge)
        if status not in {401, 403}:
            raise ValueError(f"status is {status}: it must be 401 or 403")
        self.challenge = challenge
        self.status = status
