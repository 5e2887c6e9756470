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


class LifecycleState(enum.IntEnum):
    """Where an actor is in its life."""

    STARTING = 0
    RUNNING = 1
    SUSPENDED = 2
    STOPPING = 3
    STOPPED = 4


class LifecycleEvent(enum.IntEnum):
    """What moves an actor from one state to the next."""

    STARTED = 0
    RAISED = 1
    RESTARTED = 2
    STOP_ASKED = 3
    ENDED = 4


# Members of an enum are looked up through a descriptor; the hot path compares with these names.
STARTING: Final = LifecycleState.STARTING
RUNNING: Final = LifecycleState.RUNNING
SUSPENDED: Final = LifecycleState.SUSPENDED
STOPPING: Final = LifecycleState.STOPPING
STOPPED: Final = LifecycleState.STOPPED
STARTED: Final = LifecycleEvent.STARTED
RAISED: Final = LifecycleEvent.RAISED
RESTARTED: Final = LifecycleEvent.RESTARTED
STOP_ASKED: Final = LifecycleEvent.STOP_ASKED
ENDED: Final = LifecycleEvent.ENDED

TRANSITIONS: Final[Mapping[LifecycleState, Mapping[LifecycleEvent, LifecycleState]]] = {
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
