"""What may happen to a bus, as random programs, and what is written down of it while it does."""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
from hypothesis import strategies as st
from staging import Wire

from mcpbus import Limits
from mcpbus.testing import Recording

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
URIS = ["res://a", "res://a/b", "res://c"]
LEVELS = [None, "debug", "warning"]
LIMITS = Limits(outbox_items=4, outbox_bytes=2_000, held_items=3, held_timeout=50, max_sessions=6)
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LISTS = ("tools", "prompts", "resources")


_PICK = st.integers(0, 30)
_ACTIONS: dict[str, st.SearchStrategy[Any]] = {
    "log": st.sampled_from(["debug", "info", "error"]),
    "progress": st.integers(0, 9),
    "note": st.just(0),
    "change": st.sampled_from(LISTS),
    "sleep": st.sampled_from([0, 1, 40, 400]),
    "burst": st.integers(1, 8),
    "raise": st.just(0),
}
_SAYING = ["log", "note", "progress"] * 3 + ["burst", "burst", "change", "sleep", "sleep", "sleep", "raise"]
SCRIPTS = st.lists(
    st.sampled_from(_SAYING).flatmap(lambda verb: st.tuples(st.just(verb), _ACTIONS[verb])), max_size=8
)
_FILTERS = st.sets(st.sampled_from([*LISTS, *URIS]), min_size=1)

# What may happen: how often, out of all, and with what.
_STEPS: dict[str, tuple[int, tuple[st.SearchStrategy[Any], ...]]] = {
    "call": (12, (_PICK, SCRIPTS, st.booleans(), st.sampled_from(LEVELS))),
    "cancel": (3, (_PICK,)),
    "drop": (3, (_PICK,)),
    "stall": (4, (_PICK,)),
    "resume": (4, (_PICK,)),
    "change": (4, (st.sampled_from(LISTS),)),
    "update": (3, (st.sampled_from(URIS),)),
    "tool": (1, (st.just(0),)),
    "sleep": (5, (st.sampled_from([0, 0, 0.5, 1, 16, 31, 310]),)),
    "open": (2, (st.sampled_from(LEGACY), st.booleans())),
    "wire": (2, (st.sampled_from([*LEGACY, None, None]),)),
    "get": (5, (_PICK,)),
    "subscribe": (3, (_PICK, st.sampled_from(URIS))),
    "unsubscribe": (1, (_PICK, st.sampled_from(URIS))),
    "say": (4, (_PICK, st.sampled_from(["log", "note"]))),
    "trespass": (1, (_PICK,)),
    "listen": (3, (_PICK, _FILTERS)),
    "delete": (1, (_PICK,)),
    "close": (1, (_PICK,)),
    "leave": (1, (_PICK,)),
}
_VERBS = [verb for verb, (weight, _) in _STEPS.items() for _ in range(weight)]


def steps() -> st.SearchStrategy[tuple[Any, ...]]:
    """One thing that happens."""
    return st.sampled_from(_VERBS).flatmap(lambda verb: st.tuples(st.just(verb), *_STEPS[verb][1]))


@attrs.define(eq=False)
class Client:
    """Who calls: a session over HTTP, modern HTTP, or a shared channel."""

    kind: str
    revision: str | None
    session: Any = None
    wire: Wire | None = None
    inside: Any = None
    leave: Callable[[], Awaitable[None]] | None = None
    gone: bool = False
    """Its session was ended, or it left: its calls may be cancelled."""

    @property
    def legacy(self) -> bool:
        return self.revision is not None


@attrs.define(eq=False)
class Call:
    """One tools/call."""

    number: int
    client: Client
    id: Any
    script: list[Any]
    token: str | None
    level: str | None
    post: Recording | None = None
    outcome: str = "waiting"
    cancelled: bool = False
    dropped_at: float | None = None
    last: int | None = None
    """How many messages its channel had when nothing more of this call might follow."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.client.wire.got if self.post is None else self.post.messages


@attrs.define(eq=False)
class Listen:
    """One subscriptions/listen."""

    client: Client
    id: Any
    wanted: set[str]
    post: Recording | None = None
    cancelled: bool = False
    last: int | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.client.wire.got if self.post is None else self.post.messages
