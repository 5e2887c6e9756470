"""Why a server that stands for another one cannot."""

from typing import Final

from mcpbus.protocol.printable import printable
from mcpbus.serving.errors import ServingError

_MOST_CHARACTERS: Final = 1_000


class UpstreamError(ServingError):
    """The other server cannot be reached, or what it says is no MCP."""


class OpenTimeoutError(UpstreamError):
    """A connection was not open in time."""


class NotYetError(OpenTimeoutError):
    """There is no connection yet, and one may still come of what is being done for it."""


def told(error: Exception) -> str:
    """Return what the log says of an error, in which the other server may have written anything: on one line, and not without end."""
    return printable(error, lines=False, longest=_MOST_CHARACTERS)
