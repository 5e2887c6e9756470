"""How far a client has read a stream of events, which it comes back to if it ends too early (rules W-14, W-24)."""

from typing import Final

import attrs

from mcpbus.protocol.http.sse import SseEvent

_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 30.0
_MOST_RETURNS: Final = 5
"""How often in a row a client comes back to a stream that says nothing new."""
_MOST_READ: Final = 1024
"""How many events are known again when a server repeats them."""


@attrs.define
class StreamPosition:
    """A place in a stream, and how long to wait before coming back to it.

    Attributes:
        session: The session in which the stream was opened.
        id: The last event id that was read; None, or empty, if there is nothing to come back with.
        seconds: How long to wait at least.
        returns: How often in a row the client has come back since a message came.
    """

    session: str | None
    id: str | None = None
    seconds: float = _SECONDS
    returns: int = 0
    # How often the client has come back at all, and how often it had when each of the last events was read.
    _turns: int = attrs.field(default=0, init=False, eq=False)
    _read: dict[str, int] = attrs.field(factory=dict, init=False, eq=False)

    def read(self, event: SseEvent) -> str | None:
        """Take an event; returns its message, if it is one, and not one that was read before the last return (rule W-22)."""
        if event.id is not None:
            self.id = event.id
        if event.retry is not None:
            self.seconds = min(event.retry / 1000, _MOST_SECONDS)
        if event.type != "message" or not event.data or self._is_repeated(event.id):
            return None
        self.returns = 0
        return event.data

    def _is_repeated(self, event_id: str | None) -> bool:
        if not event_id:
            return False
        read = self._read.setdefault(event_id, self._turns)
        if len(self._read) > _MOST_READ:
            del self._read[next(iter(self._read))]
        return read != self._turns

    def reconnect(self) -> bool:
        """Count one more return; returns whether there were not too many."""
        self.returns += 1
        self._turns += 1
        return self.returns <= _MOST_RETURNS

    @property
    def pause(self) -> float:
        """How many seconds to wait before coming back: as many as the server says, and twice as many each time it says nothing new."""
        return float(min(self.seconds * 2 ** (self.returns - 1), _MOST_SECONDS))

    @property
    def is_last_return(self) -> bool:
        """Whether this is the last attempt in a row."""
        return self.returns == _MOST_RETURNS
