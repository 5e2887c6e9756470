"""The streams of one session that its client can come back to."""

from typing import Generic, TypeVar

from mcpbus.core.event_log import EventLog

T = TypeVar("T")
"""Streams."""

_REMEMBERED = 32
"""How many streams that have ended a session knows the last event of."""

_MOST_BROKEN = 1_000
"""How many streams with a gap it knows: as many as may have been open when a store failed."""


class ResumableStreams(Generic[T]):
    """Where a session's streams are found by the names of their logs.

    Of those that ended lately with nothing left to say it is known where, though no store was ever told of a stream
    without events: whoever comes back to one must hear that there is nothing to wait for, not that it never was. Of
    those with a gap, where the store failed, nothing is replayed, whatever it has of them later on.
    """

    __slots__ = ("_broken", "_ended", "_live", "_used")

    def __init__(self) -> None:
        self._live: dict[str, tuple[T, EventLog]] = {}
        self._ended: dict[str, int] = {}
        self._broken: dict[str, None] = {}
        self._used = False

    def add(self, stream: T, log: EventLog) -> None:
        """Enter a stream."""
        self._live[log.name] = stream, log

    def find(self, name: str) -> T | None:
        """Return a stream that has not ended."""
        live = self._live.get(name)
        return None if live is None else live[0]

    def ended(self, log: EventLog, *, complete: bool) -> None:
        """Note that a stream has ended, and whether its log has all that it had to say."""
        self._live.pop(log.name, None)
        self._used = self._used or log.used
        if log.resumable and complete:
            self._ended[log.name] = log.last
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]
        elif log.offered and not log.resumable:
            self._broken[log.name] = None
            if len(self._broken) > _MOST_BROKEN:
                del self._broken[next(iter(self._broken))]

    def ended_with(self, name: str, number: int) -> bool:
        """Return whether a stream is known to have ended with this event, and with nothing left to say."""
        return self._ended.get(name) == number

    def has_gap(self, name: str) -> bool:
        """Return whether the store is known not to have all of a stream that has ended."""
        return name in self._broken

    def close(self) -> bool:
        """Keep nothing any more, since the session has ended; return whether the store may have something of it."""
        for _, log in self._live.values():
            self._used = self._used or log.used
            log.end()
        return self._used
