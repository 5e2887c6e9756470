"""What is written down of a world while things happen in it; all of it comes from outside the bus."""

import math
from typing import Any

import attrs

CEILING = 60.0
"""Seconds that a legacy client has for an answer."""
PATIENCE = 100.0
"""Seconds that a parked call waits for its client."""
LIFETIME = 150.0
"""Seconds that a task has, and then its result."""


@attrs.define(eq=False)
class Sent:
    """One request that a client sent, and the ear on which its answer has to come.

    Attributes:
        silenced: From which moment nothing may be said for it, in ticks of the world.
        ends: How many messages the ears of its stream had when nothing more of it might follow.
        tasks: Whether it declared that it takes tasks.
        fault: With which code it has to be answered, if it must not be served.
    """

    client: Any
    id: Any
    method: str
    legacy: bool
    ear: Any
    token: Any = None
    level: str | None = None
    call: "Call | None" = None
    at: float = 0.0
    cancelled: bool = False
    dropped_at: float | None = None
    silenced: float = math.inf
    ends: dict[Any, int] = attrs.field(factory=dict)
    tasks: bool = False
    fault: int | None = None
    reply: dict[str, Any] | None = None


@attrs.define(eq=False)
class Call:
    """One call of a tool: its script, the requests that carried it, and how its handler fares.

    Attributes:
        sents: The request, and the retries of it.
        outcome: What its handler does: it is "waiting" to run, "running", "returned" or "cancelled".
        shielded: Whether its handler minds no cancellation just now.
        runs: How often its handler began.
        asking: How many questions its handler waits for.
        context: What its handler was given.
        task: What its client knows of the task that it became.
    """

    number: int
    client: Any
    tool: str
    script: list[Any]
    sents: list[Sent] = attrs.field(factory=list)
    outcome: str = "waiting"
    shielded: bool = False
    began: float = 0.0
    runs: int = 0
    asking: int = 0
    context: Any = None
    task: "TaskNote | None" = None

    @property
    def is_task(self) -> bool:
        """Whether it has become a task, whether or not its client knows yet."""
        return self.context is not None and self.context.task_id is not None

    def carried_by(self, request_id: Any) -> Sent | None:
        """The request of this id, by type and value."""
        return next((s for s in self.sents if s.id == request_id and type(s.id) is type(request_id)), None)


@attrs.define(eq=False)
class Said:
    """Something that the server said, and on whose behalf.

    Attributes:
        receipt: What the bus gave for it; None if its handler was cancelled in that very moment.
        sent: The request that carried it.
        client: Whom it was for, if no request carried it.
        tick: When it was said.
    """

    what: Any
    tick: int
    sent: Sent | None = None
    client: Any = None
    receipt: Any = None


@attrs.define(eq=False)
class Asked:
    """A question of a handler, or of the server's program to a session.

    Attributes:
        call: Whose handler asked; None if none did.
        sent: The request that carried it then.
        bound: By when it has ended, whatever its client does; moved by each retry.
        client: Who was asked, if no handler did.
        together: All the questions that it was asked with.
        outcome: "answered", the name of the error, or "cancelled"; None while its asker waits.
    """

    number: int
    call: Call | None
    sent: Sent | None
    started: float
    bound: float
    client: Any = None
    together: "list[Asked]" = attrs.field(factory=list)
    ended: float | None = None
    outcome: str | None = None
    value: str | None = None


@attrs.define(eq=False)
class Heard:
    """A request of the server, as a legacy client heard it."""

    ear: Any
    id: Any
    number: int
    params: dict[str, Any]
    index: int
    answered: bool = False


@attrs.define(eq=False)
class Round:
    """An answer `input_required`, which a retry may carry on once."""

    sent: Sent
    state: str
    requests: dict[str, Any]
    used: bool = False


@attrs.define(eq=False)
class TaskNote:
    """A call that was answered with a handle."""

    id: str
    call: Call
    client: Any
    requests: dict[str, Any] = attrs.field(factory=dict)
    cancelled: bool = False


@attrs.define(eq=False)
class Listen:
    """One subscriptions/listen, and the filter that it asked for."""

    sent: Sent
    lists: set[str]
    uris: set[str]
    tasks: list[TaskNote]
