"""The log of one list: however many of its items cannot be offered, it has one line for them.

A foreign server decides how many these are, and lists them again for each client.
"""

import logging


class LeftOut:
    """The items of one list that cannot be offered.

    Args:
        logger: The logger that writes the line.
        level: The level of the line.
    """

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._first: tuple[str, tuple[object, ...]] | None = None
        self._more = 0

    def note(self, text: str, *args: object) -> None:
        """Note why an item is left out: a text with places for the arguments."""
        if self._first is None:
            self._first = text, args
        else:
            self._more += 1

    def log(self) -> None:
        """Write the line: why the first item is left out, and how many others are. No line if none is."""
        if self._first is not None:
            text, args = self._first
            if self._more:
                text, args = f"{text} (and %d more items of this list)", (*args, self._more)
            self._logger.log(self._level, text, *args)
