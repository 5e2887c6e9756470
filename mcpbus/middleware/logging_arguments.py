"""What a middleware is given that tells a log."""

import logging
from typing import Any


def check_logging(owner: str, logger: Any, level: Any) -> None:
    """Refuse what is no logger and no level: that would come out with the first call.

    Raises:
        TypeError: the message says what to write.
    """
    if logger is not None and not isinstance(logger, logging.Logger | logging.LoggerAdapter):
        raise TypeError(f"{owner}: logger is a logger: write logging.getLogger({logger!r})")
    if not isinstance(level, int):
        raise TypeError(f"{owner}: level is a number: write logging.INFO or the like, not {level!r}")
