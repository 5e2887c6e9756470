"""Who is behind an HTTP request: the author's function is asked here, for every transport over HTTP."""

from typing import Any

from mcpbus.containment import ExceptionsOnly
from mcpbus.protocol.errors import invalid_request
from mcpbus.protocol.http.authentication import Authenticate, Unauthorized
from mcpbus.protocol.http.messages import Answer, Head, refusal


async def authorize(authenticate: Authenticate | None, head: Head) -> tuple[Any, Answer | None]:
    """Ask who is behind a request.

    Args:
        authenticate: The author's function; without it there is nobody to ask for.
        head: The request.

    Returns:
        The principal; or None, and what the request is refused with.

    Raises:
        Exception: The function failed.
    """
    if authenticate is None:
        return None, None
    try:
        with ExceptionsOnly("authenticate"):
            return await authenticate(head), None
    except Unauthorized as refused:
        return None, _challenge(refused)


def _challenge(refused: Unauthorized) -> Answer:
    """Return the answer of a request whose principal may not make it."""
    header = (b"www-authenticate", refused.challenge.encode("latin-1"))
    why = "who is asking is not known" if refused.status == 401 else "who is asking may not"
    return refusal(refused.status, invalid_request(why), None, header)
