"""What becomes of a writer that fails when it is time to write."""

import logging
from typing import Final

from mcpbus.transports.response_sinks import CoalescedWriter

_logger: Final = logging.getLogger("mcpbus.serving")


def give_up(writer: CoalescedWriter, failure: Exception) -> None:
    """Log what one writer among many has raised, and end what it writes for: the others are not to blame, and go on."""
    _logger.error("what a connection had to say could not be written", exc_info=failure)
    writer.lose()
