"""The hint for a server that is hosted on trio, and whose code uses asyncio.

The SDK turns such an exception of a tool into a result without its text, and logs it. So the log of the SDK is watched for it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from mcpbus.dispatch.handlers import is_of_asyncio

_LOGGERS: Final = ("mcp", "fastmcp", "FastMCP")
"""The loggers of the SDKs, to which those of their modules propagate."""
_TEXTS: Final = (b"no running event loop", b"trio got unexpected")

_log = logging.getLogger("mcpbus")


class AsyncioHint(logging.Handler):
    """Logs once that a server on trio uses asyncio.

    Args:
        name: The name of the server.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.ERROR)
        self._server = name
        self._given = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the loggers of the SDKs within the block."""
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        for logger in loggers:
            logger.addHandler(self)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            if is_of_asyncio(error):
                self._give()
            error = error.__cause__ or error.__context__

    def note_result(self, result: bytes) -> None:
        """Look for the text of such an exception in a result, in which older SDKs put it."""
        if b'"isError":true' in result and any(text in result for text in _TEXTS):
            self._give()

    def _give(self) -> None:
        if not self._given:
            self._given = True
            _log.error(
                '%s runs on trio, and its code uses asyncio: host it with loop="asyncio"', self._server
            )


def explained(name: str, error: BaseException) -> Any:
    """Return the error of a server that does not open on trio because it uses asyncio; the error itself if that is not why."""
    if not is_of_asyncio(error):
        return error
    return RuntimeError(
        f'{name} does not open on trio, since its code uses asyncio ({error}): host it with loop="asyncio"'
    )
