"""What an event store does, and no more than that."""

from collections.abc import Sequence
from typing import Protocol

import attrs


@attrs.frozen
class Replay:
    """What followed an event on its stream.

    Attributes:
        events: The later events in order, each one JSON-RPC message.
        finished: Whether the stream has said all that it had to say.
    """

    events: Sequence[bytes]
    finished: bool


class EventStore(Protocol):
    """Keeps the events of streams, each numbered from 1 within its stream.

    Every call names the session: a store never gives one session's events to another. Streams are named by
    unguessable texts. A store may drop the oldest events to keep its bounds; it then knows that they are gone.
    Whatever it raises ends the resumability of that stream, as does an `append` that is cancelled at its deadline, and
    the store is left alone for a while; live writing goes on. After that it is asked for nothing of that stream again, so
    it may keep what it was given, or not.
    """

    async def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> None:
        """Keep events, the first of them numbered `first`; `final` if they end the stream."""

    async def replay(self, session: str, stream: str, after: int) -> Replay | None:
        """Return what followed event `after`; None if the stream is not known, or part of that was dropped."""

    async def forget(self, session: str) -> None:
        """Drop all streams of a session, in a time that grows with what these have, and not with what others have."""
