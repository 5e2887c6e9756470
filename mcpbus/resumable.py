"""The streams of one session that its client can come back to."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcpbus.stores.log import EventLog
    from mcpbus.stream import Stream

_REMEMBERED = 32
"""How many streams that have ended a session knows the last event of."""


class ResumableStreams:
    """Where a session's streams are found by the names of their logs.

    Of those that ended lately with nothing left to say it is known where, though no store was ever told of a stream
    without events: whoever comes back to one must hear that there is nothing to wait for, not that it never was.
    """

    __slots__ = ("_ended", "_live")

    def __init__(self) -> None:
        self._live: dict[str, Stream] = {}
        self._ended: dict[str, int] = {}

    def add(self, stream: "Stream", log: "EventLog") -> None:
        """Enter a stream."""
        self._live[log.name] = stream

    def find(self, name: str) -> "Stream | None":
        """Return a stream that has not ended."""
        return self._live.get(name)

    def ended(self, log: "EventLog", *, complete: bool) -> None:
        """Note that a stream has ended, and whether its log has all that it had to say."""
        self._live.pop(log.name, None)
        if log.resumable and complete:
            self._ended[log.name] = log.last
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def ended_with(self, name: str, number: int) -> bool:
        """Return whether a stream is known to have ended with this event, and with nothing left to say."""
        return self._ended.get(name) == number
