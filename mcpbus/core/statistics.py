"""What a bus tells of itself."""

from collections.abc import Mapping

import msgspec

from mcpbus.core.receipt import Location
from mcpbus.protocol.routes import Reason


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a bus has done and holds at one moment.

    Attributes:
        sessions: Legacy sessions that are open.
        requests: Requests in flight, listens included.
        listens: Those that are listens.
        emitted: Messages made for clients so far; with those adopted it equals all that follow together.
        adopted: Those of sessions that were taken over from another process, where they were made.
        delivered: Those whose write returned.
        stored: Those kept in the log of a stream that its client lost.
        discarded: Those discarded, by reason.
        refused: Questions to clients that were refused; their askers were told.
        moved: Those handed over to another process, with their session.
        pending: Those without a fate, by the place where they are.
        actors: Actors that are alive.
        tasks: Tasks that they run.
        held_bytes: Bytes that are kept in memory for clients, as `Limits.memory_bytes` bounds them.
        limits_reached: How often each limit was reached, by the name of the option that sets it.
    """

    sessions: int
    requests: int
    listens: int
    emitted: int
    adopted: int
    delivered: int
    stored: int
    discarded: Mapping[Reason, int]
    refused: int
    moved: int
    pending: Mapping[Location, int]
    actors: int
    tasks: int
    held_bytes: int
    limits_reached: Mapping[str, int]
