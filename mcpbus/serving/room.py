"""How many connections there may be, and what a client is told for which there is none."""

import errno
from contextlib import suppress
from typing import Final

from mcpbus.core.shares import NoRoomError
from mcpbus.serving.deadline_stream import GONE, DeadlineStream
from mcpbus.serving.http1.encoder import CLOSE, encode_answer
from mcpbus.transports.answers import RETRY_AFTER

OUT_OF_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Why the system may not accept a connection which stays where it is."""
BROKEN: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP})
"""Why nothing can be accepted any more. All else is a fault of the one connection, which is gone (accept(2))."""
ROOM_SECONDS: Final = 0.1
"""How long not to accept after there was no room for another connection."""

_KEPT_BACK: Final = 64
_MOST: Final = 100_000


def most_connections() -> int:
    """Return how many connections there may be by default.

    Of the descriptors that the process may open an eighth is kept back for what handlers open, and 64 if half of them are more.
    """
    try:
        import resource  # noqa: PLC0415 - not everywhere
    except ImportError:
        return _MOST
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, max(1, descriptors // 2, descriptors - max(_KEPT_BACK, descriptors // 8)))


def reject_connection(transport: DeadlineStream, full: NoRoomError) -> None:
    """Close a connection for which there is no room; send the reason as far as that takes no time, and no handshake."""
    if not transport.secure:
        status, why = (
            (429, b"too many connections from here\n") if full.past_share else (503, b"the server is full\n")
        )
        fields = [(b"content-type", b"text/plain; charset=utf-8"), RETRY_AFTER]
        with suppress(*GONE):
            # The kernel resets a connection that is closed with something unread, and the client loses what it was told.
            transport.receive_now()
            transport.send_now(encode_answer(status, fields, why, CLOSE))
    transport.close()
