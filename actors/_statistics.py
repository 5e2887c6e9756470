"""What a system has done and holds, at one moment."""

from collections.abc import Mapping

import attrs

from actors._messages import Discard


@attrs.frozen
class Statistics:
    """A snapshot. At every checkpoint ``accepted == handled + discarded + queued``.

    Attributes:
        accepted: Messages that were given a place, system messages included.
        handled: Messages that `handle` returned from, and the one it is at work on, if any.
        discarded: Messages that were accepted and then not handled, or raised on.
        queued: Messages that wait now.
        dead_letters: Messages that were refused or discarded, by reason.
        late_replies: Replies to questions that had already ended.
        actors: Actors alive now.
        spawned: Actors spawned so far.
        failures: Exceptions of actors and of their callbacks so far.
        restarts: Fresh instances put in the place of one that raised.
        tasks: Tasks running now, those of the system itself included.
        timers: Timers running now.
    """

    accepted: int
    handled: int
    discarded: int
    queued: int
    dead_letters: Mapping[Discard, int]
    late_replies: int
    actors: int
    spawned: int
    failures: int
    restarts: int
    tasks: int
    timers: int
