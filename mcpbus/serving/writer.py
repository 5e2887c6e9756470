"""What has something to write, and is called when it is time for that."""

import logging
from typing import Final, Protocol

_logger: Final = logging.getLogger("mcpbus.serving")


class Writer(Protocol):
    """What has something to write, and may have more before it is called."""

    def write_now(self) -> None:
        """Write it, or begin to, if it is not written yet. No schedule point."""

    def lose(self) -> None:
        """End what it is written for, in the middle of it. Harmless once that was done. No schedule point."""


def give_up(writer: Writer, failure: Exception) -> None:
    """Log what one writer among many has raised, and end what it writes for: the others are not to blame, and go on."""
    _logger.error("what a connection had to say could not be written", exc_info=failure)
    writer.lose()
