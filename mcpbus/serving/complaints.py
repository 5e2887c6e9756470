"""What the log says about the connections of clients."""

import logging
from typing import Final

from mcpbus.core import complaints

_logger: Final = logging.getLogger("mcpbus.serving")


class Complaints(complaints.Complaints):
    """The warnings about the connections to one server."""

    def __init__(self) -> None:
        super().__init__(_logger)
