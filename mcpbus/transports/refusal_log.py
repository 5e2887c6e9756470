"""A line in the log about each request that is refused for who asks, or for where, with the reason that the client is told.

What is refused for want of room is said by the limit that was reached, see `LimitMonitor`.
"""

import logging
from typing import Any, Final

import msgspec

from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.printable import quoted

_log: Final = logging.getLogger("mcpbus")

_LINES: Final = {status: f"refused with {status}: %s %s from %s: %s" for status in (401, 403, 404, 503)}
_LONGEST: Final = 200


class RefusalLog:
    """What was refused at one endpoint."""

    def __init__(self) -> None:
        self._complaints = RateLimitedLogger(_log, logging.INFO)

    def note(self, answer: HttpResponse, head: RequestHead, peer: Peer | None) -> HttpResponse:
        """Tell the log of an answer, if it is a refusal.

        Args:
            answer: The answer, which is returned as it is.
            head: The request.
            peer: From where it came, where that is known.
        """
        line = _LINES.get(answer.status)
        if line is not None:
            self._complaints.warn(
                line,
                sanitize_for_log(head.verb),
                sanitize_for_log(head.path),
                peer or "somebody",
                sanitize_for_log(_reason(answer)),
            )
        return answer


def sanitize_for_log(text: str) -> str:
    """Return a client's text as one line, and not a long one, in which nothing steers a terminal."""
    return quoted(text, _LONGEST)


def _reason(answer: HttpResponse) -> str:
    try:
        body: dict[str, Any] = msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.DecodeError:
        return answer.body.decode(errors="replace").strip()
    error = body.get("error")
    return (
        str(error.get("message")).removeprefix("Invalid request: ") if isinstance(error, dict) else str(body)
    )
