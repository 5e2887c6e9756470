"""The limits of a bus, and the least rate at which a client has to send."""

from functools import partial
from typing import Final

import attrs
import msgspec

from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.keywords import Elsewhere, explained_as
from mcpbus.protocol.validators import flag, ge, gt, wire_duration


class MinDataRate(msgspec.Struct, frozen=True):
    """The time that a client has to send something long, such as the body of a request.

    It has so many seconds in the beginning. What comes gives it as much time back as that may take at the least speed, but never
    more than it had in the beginning: then it may not pause for longer, and one that now and then sends a byte is not waited
    for, whatever it has sent before.

    Attributes:
        seconds: How long it may pause.
        bytes_per_second: The least speed on the whole.
    """

    seconds: float
    bytes_per_second: float

    def begin(self, now: float) -> float:
        """Return until when to wait for the first of it."""
        return now + self.seconds

    def next_read(self, until: float, now: float, received: int) -> float:
        """Return until when to wait for more, now that so many bytes have come which were waited for until then."""
        return min(max(until, now) + received / self.bytes_per_second, now + self.seconds)


DRAIN_SECONDS: Final = 5.0
SLICE_BYTES: Final = 16 * 1024
"""How much of a write a client must take within `Limits.write_deadline`."""
"""How long requests may go on once a shutdown was asked for, unless whoever opens or serves says otherwise."""


_ELSEWHERE: Elsewhere = {
    "listens": lambda listens: f"write Server(..., listens={listens!r})",
    "drain_timeout": lambda seconds: (
        f"write server.run(drain_timeout={seconds!r}), or give it to whatever else opens"
    ),
}


@explained_as(elsewhere=_ELSEWHERE)
@attrs.frozen(kw_only=True)
class Limits:
    """What a bus allows its clients to use.

    Attributes:
        max_sessions: Legacy sessions at once, and connections of WebSocket, HTTP+SSE and the like; past it, an idle
            one of whoever has most makes room, first of all one whose client never sent ``initialized``.
        idle_timeout: Seconds without a request in flight or an open stream after which a session ends.
        initialize_timeout: Seconds within which a client must send ``initialized``; and within which it must say
            anything at all over WebSocket or HTTP+SSE.
        on_session_timeout: Seconds that the `on_session` hooks have, all together; and those of `on_session_end`.
        max_requests: Requests in flight on the whole bus, listens apart.
        max_listens: Listens on the whole bus.
        max_listen_seconds: Seconds after which a ``subscriptions/listen`` ends in good order, with its result; its client may begin another
            one. None for no such end.
        max_requests_per_session: Requests in flight in one session, or on one shared channel, with its listens.
        max_subscriptions_per_session: Resources that one legacy session may subscribe to.
        max_listened_resources: Resources that one ``subscriptions/listen`` may name, and likewise tasks.
        abandoned_timeout: Seconds that a legacy request runs on after its stream was lost.
        input_timeout: Seconds to wait at most for a legacy client's answer to a question.
        max_suspended_calls: Calls that may wait for a modern client to come back with answers; beyond it the oldest goes of
            whoever has most.
        suspended_timeout: Seconds that each of them waits, and that the state which the client carries is good for.
        max_running_tasks: Tasks whose handler runs, at once; a call that would be one more runs within its request,
            or is refused where its tool requires a task.
        max_tasks: Tasks at once, with those that have ended and whose result is kept; beyond it the oldest result makes
            room of whoever has most, if that is not the newcomer, who is served as above if there is none.
        task_bytes: Bytes of such results; once there are as many, likewise.
        task_ttl: Seconds that a task may run, and then for which its result is kept.
        task_poll_interval: Seconds between two looks at a task that clients are advised to wait.
        memory_bytes: Bytes that are kept in memory for clients, of whatever kind: what waits to be read, and what a client has made
            the bus keep. Past it those that hold the most are ended, and while that does not help newcomers are
            refused with 503.
        outbox_items: Notifications that may wait for one stream.
        outbox_bytes: Bytes of notifications that may wait for one stream.
        held_items: Messages that a session holds for a stream that is not open.
        held_timeout: Seconds for which it holds them.
        keep_alive: Seconds of silence after which a comment is sent on an SSE stream; an answer that has not
            begun by then begins as one.
        body_timeout: Seconds that a client may pause within the body of a request.
        body_bytes_per_second: How fast such a body has to come on the whole: each so many bytes that have come are good for
            another second, up to `body_timeout`. Past that the request is answered 408, and its connection or stream ends.
        write_deadline: Seconds within which a client must take what is written to it.
        stream_outlives_token: Whether what a client listens on goes on when the token has expired with which it was opened. If not, it
            ends half a minute later, and the client comes back with a new one.
        store_deadline: Seconds within which a store must have kept what it is given; past it, as where it fails, live streams
            go on without it.
        store_pause: Seconds for which a store is then left alone.
        log_level: The level from which logs go to a legacy client that has not set one.
    """

    max_sessions: int = attrs.field(default=10_000, validator=ge(1))
    idle_timeout: float = attrs.field(default=1800.0, validator=gt(0))
    initialize_timeout: float = attrs.field(default=60.0, validator=gt(0))
    on_session_timeout: float = attrs.field(default=10.0, validator=gt(0))
    max_requests: int = attrs.field(default=10_000, validator=ge(1))
    max_listens: int = attrs.field(default=10_000, validator=ge(1))
    max_listen_seconds: float | None = attrs.field(default=None, validator=attrs.validators.optional(gt(0)))
    max_requests_per_session: int = attrs.field(default=1_000, validator=ge(1))
    max_subscriptions_per_session: int = attrs.field(default=1_000, validator=ge(0))
    max_listened_resources: int = attrs.field(default=1_000, validator=ge(0))
    abandoned_timeout: float = attrs.field(default=300.0, validator=gt(0))
    input_timeout: float = attrs.field(default=300.0, validator=gt(0))
    max_suspended_calls: int = attrs.field(default=1_000, validator=ge(1))
    suspended_timeout: float = attrs.field(default=600.0, validator=gt(0))
    max_running_tasks: int = attrs.field(default=1_000, validator=ge(1))
    max_tasks: int = attrs.field(default=10_000, validator=ge(1))
    task_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=ge(1))
    task_ttl: float = attrs.field(default=3600.0, validator=wire_duration)
    task_poll_interval: float = attrs.field(default=1.0, validator=wire_duration)
    memory_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=ge(1))
    outbox_items: int = attrs.field(default=1_024, validator=ge(1))
    outbox_bytes: int = attrs.field(default=4 * 1024 * 1024, validator=ge(1))
    held_items: int = attrs.field(default=256, validator=ge(0))
    held_timeout: float = attrs.field(default=300.0, validator=gt(0))
    keep_alive: float = attrs.field(default=15.0, validator=gt(0))
    body_timeout: float = attrs.field(default=30.0, validator=gt(0))
    body_bytes_per_second: float = attrs.field(default=500.0, validator=gt(0))
    write_deadline: float = attrs.field(default=30.0, validator=gt(0))
    stream_outlives_token: bool = attrs.field(default=False, validator=flag)
    store_deadline: float = attrs.field(default=1.0, validator=gt(0))
    store_pause: float = attrs.field(default=30.0, validator=gt(0))
    log_level: LogLevel = attrs.field(default=LogLevel.INFO, converter=LogLevel)

    @property
    def body_rate(self) -> MinDataRate:
        """How fast the body of a request has to come."""
        return MinDataRate(self.body_timeout, self.body_bytes_per_second)


def _write(name: str, value: object) -> str:
    return f"write limits=Limits({name}={value!r})"


AS_LIMITS: Final[Elsewhere] = {name: partial(_write, name) for name in attrs.fields_dict(Limits)}
"""For what takes ``limits=``: each limit, if it is given as an option by itself."""
