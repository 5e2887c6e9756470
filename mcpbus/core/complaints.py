"""What the log says about clients. They decide how often there is something to say; so it is said no more often than is of use."""

import logging
from typing import Final

import attrs
import trio

_SECONDS: Final = 60.0
_MOST: Final = 10
"""Lines of one kind that are written in so many seconds."""


@attrs.define
class _Kind:
    """What was said of one kind lately.

    Attributes:
        until: When what was said before does not count any more, by trio's clock.
        said: How many lines.
        unsaid: How many more there were.
    """

    until: float
    said: int = 0
    unsaid: int = 0


class RateLimitedLogger:
    """Lines about the clients of one server: of each kind a few in a minute, and how many there were besides.

    Args:
        logger: Who writes them.
        level: How much they matter.
    """

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._kinds: dict[str, _Kind] = {}

    def warn(self, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Write a line, or count it.

        Args:
            text: What is said, with places for the arguments, and so of which kind it is: one of few, never a client's text.
            args: The arguments.
            exc_info: What was raised, if that is to be seen.
        """
        now, kind = trio.current_time(), self._kinds.get(text)
        more = 0
        if kind is None or now >= kind.until:
            more = 0 if kind is None else kind.unsaid
            kind = self._kinds[text] = _Kind(now + _SECONDS)
        elif kind.said == _MOST:
            kind.unsaid += 1
            return
        kind.said += 1
        if more:
            text, args = f"{text} (and %d times more since the last line about it)", (*args, more)
        self._logger.log(self._level, text, *args, exc_info=exc_info)
