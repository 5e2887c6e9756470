"""How far a client has read a stream of events, which it comes back to if it ends too early (rules W-14, W-24)."""

from typing import Final

import attrs

from mcpbus.protocol.http.sse import Event

_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 30.0
_MOST_RETURNS: Final = 5
"""How often in a row a client comes back to a stream that says nothing new."""


@attrs.define
class StreamPlace:
    """A place in a stream, and how long to wait before coming back to it.

    Attributes:
        session: The session in which the stream was opened.
        id: The last event id that was read; None, or empty, if there is nothing to come back with.
        seconds: How long to wait.
        returns: How often in a row it was come back to since a message came.
    """

    session: str | None
    id: str | None = None
    seconds: float = _SECONDS
    returns: int = 0

    def read(self, event: Event) -> str | None:
        """Take an event; returns its message, if it is one."""
        if event.id is not None:
            self.id = event.id
        if event.retry is not None:
            self.seconds = min(event.retry / 1000, _MOST_SECONDS)
        if event.type != "message" or not event.data:
            return None
        self.returns = 0
        return event.data

    def turn_back(self) -> str | None:
        """Come back once more; returns with which event id, None if there is none, or it was done too often."""
        self.returns += 1
        return self.id or None if self.returns <= _MOST_RETURNS else None

    @property
    def is_last_return(self) -> bool:
        """Whether this is the last attempt in a row."""
        return self.returns == _MOST_RETURNS
