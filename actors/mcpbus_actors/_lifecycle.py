"""The life of an actor, as a table.

Rules:

- A state is left only through a row of ``TRANSITIONS``. A missing key is a defect of this package.
- ``STARTING`` lasts while the factory runs, ``SUSPENDED`` while the supervisor decides. Both are
  synchronous, so neither is ever seen at a checkpoint.
- ``STOPPING`` lasts from the wish to stop until the dispatcher comes round to it. The address
  refuses from here on.
- ``STOPPED`` has no way out: an address is never bound again.

The states are ordered: everything from ``STOPPING`` on refuses messages.
"""

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.IntEnum):
    """Where an actor is in its life."""

    STARTING = 0
    RUNNING = 1
    SUSPENDED = 2
    STOPPING = 3
    STOPPED = 4


class Event(enum.IntEnum):
    """What moves an actor from one state to the next."""

    STARTED = 0
    RAISED = 1
    RESTARTED = 2
    STOP_ASKED = 3
    ENDED = 4


# Members of an enum are looked up through a descriptor; the hot path compares with these names.
STARTING: Final = State.STARTING
RUNNING: Final = State.RUNNING
SUSPENDED: Final = State.SUSPENDED
STOPPING: Final = State.STOPPING
STOPPED: Final = State.STOPPED
STARTED: Final = Event.STARTED
RAISED: Final = Event.RAISED
RESTARTED: Final = Event.RESTARTED
STOP_ASKED: Final = Event.STOP_ASKED
ENDED: Final = Event.ENDED

TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    STARTING: {
        STARTED: RUNNING,
        RAISED: SUSPENDED,
        STOP_ASKED: STOPPING,
        ENDED: STOPPED,
    },
    RUNNING: {
        RAISED: SUSPENDED,
        STOP_ASKED: STOPPING,
        ENDED: STOPPED,
    },
    SUSPENDED: {
        RESTARTED: STARTING,
        STOP_ASKED: STOPPING,
        ENDED: STOPPED,
    },
    STOPPING: {
        STARTED: STOPPING,  # a factory may ask to stop before it returns
        RAISED: STOPPING,  # the wish to stop stands, whatever is raised after it
        STOP_ASKED: STOPPING,
        ENDED: STOPPED,
    },
    STOPPED: {},
}
