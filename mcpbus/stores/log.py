"""The log of one stream: it numbers events, names them, and knows whether a client could come back."""

import logging
import re
import secrets
from collections.abc import Sequence

import trio

from mcpbus.outbox import Outgoing
from mcpbus.routing import Line
from mcpbus.stores.protocol import EventStore

_log = logging.getLogger("mcpbus")
_EVENT_ID = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9]{1,15})")
_GET, _REQUEST = "g", "r"


def parse_event_id(event_id: str) -> tuple[str, int] | None:
    """Return the stream and the number that an event's id names; None if it names none."""
    match = _EVENT_ID.fullmatch(event_id)
    return None if match is None else (match[1], int(match[2]))


def is_get_stream(name: str) -> bool:
    """Return whether a log's name is that of a GET stream; its client can tell us nothing else once it has ended."""
    return name.startswith(_GET)


class EventLog:
    """What one stream has said, in a store.

    Args:
        store: Keeps it.
        session: The id of the session that it belongs to.
        line: What kind of stream it is.
        primes: Whether it begins with an id without data, as 2025-11-25 has it.
        deadline: Seconds that the store may take.

    Attributes:
        name: The stream's name in the store, and in its events' ids.
        primes: Whether the stream begins with an id without data, as 2025-11-25 has it.
        offered: Whether an event id has gone out: only then can a client come back.
        finished: Whether the last message of the stream was kept.
    """

    __slots__ = (
        "_broken",
        "_deadline",
        "_last",
        "_session",
        "_store",
        "finished",
        "name",
        "offered",
        "primes",
    )

    def __init__(self, store: EventStore, session: str, line: Line, *, primes: bool, deadline: float) -> None:
        self._store = store
        self._session = session
        self._deadline = deadline
        self._last = 0
        self._broken = False
        self.name = (_GET if line is Line.GET else _REQUEST) + secrets.token_urlsafe(12)
        self.primes = primes
        self.offered = False
        self.finished = False

    @property
    def resumable(self) -> bool:
        """Whether a client that lost the stream could come back to it."""
        return self.offered and not self._broken

    @property
    def last(self) -> int:
        """The number of the last event that was kept; 0 before the first."""
        return self._last

    def offer(self) -> str:
        """Return the id of the last event, for an event without data that tells it to the client."""
        self.offered = True
        return f"{self.name}.{self._last}"

    async def append(self, batch: Sequence[Outgoing]) -> list[str] | None:
        """Keep messages, and return their ids; None if they were not kept, which ends the resumability.

        A cancellation waits for the store, for no longer than its deadline: afterwards it is known what is kept.
        """
        if self._broken:
            return None
        first = self._last + 1
        events = [message.data for message in batch]
        try:
            with trio.CancelScope(shield=True), trio.fail_after(self._deadline):
                await self._store.append(self._session, self.name, first, events, final=batch[-1].final)
        except Exception:  # noqa: BLE001 - a store is somebody else's code, and live writing goes on
            self._broken = True
            _log.exception("the event store failed; stream %s can no longer be resumed", self.name)
            return None
        self._last += len(batch)
        self.finished = batch[-1].final
        self.offered = True
        return [f"{self.name}.{number}" for number in range(first, self._last + 1)]
