"""What mcpbus and its clients agree on over WebSocket beside RFC 6455; the whole binding is in ``docs/websocket.md``."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

SUBPROTOCOL: Final = "mcp"

FAREWELL_SECONDS: Final = 1.0
"""How long a client that was told of the end has to say so too. Closed before that, the socket could be reset, and the code lost."""


class CloseCode(IntEnum):
    """With which codes the server closes (RFC 6455, section 7.4.1, and the registry that it sets up)."""

    NORMAL = 1000
    """The server has ended the session."""
    GOING_AWAY = 1001
    """The server shuts down."""
    PROTOCOL_ERROR = 1002
    """What came is not as RFC 6455 has it."""
    UNSUPPORTED_DATA = 1003
    """A binary message came."""
    INVALID_DATA = 1007
    """A text message is not UTF-8."""
    POLICY_VIOLATION = 1008
    """Frames came in numbers that bring nothing; or the upgrade was refused, by an ASGI server that cannot say it in HTTP."""
    MESSAGE_TOO_BIG = 1009
    """A message was longer than it may be."""
    INTERNAL_ERROR = 1011
    """The server failed."""
    TRY_AGAIN_LATER = 1013
    """Too much is kept in memory, and in a message that is unfinished the most."""

    @property
    def reason(self) -> str:
        """The same for people."""
        return self.name.lower().replace("_", " ")


def select(offered: Sequence[str]) -> str | None:
    """Return the subprotocol to select: one that was not offered must not be (RFC 6455, section 4.2.2)."""
    return SUBPROTOCOL if offered else None
