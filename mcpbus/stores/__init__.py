"""Event stores: what lets a legacy client come back to a stream that it lost."""

from typing import TYPE_CHECKING, Any

from mcpbus.core.event_log import EventLog, parse_event_id
from mcpbus.core.stores.memory import MemoryEventStore
from mcpbus.core.stores.promise import Promise
from mcpbus.core.stores.protocol import EventStore, Replay
from mcpbus.core.stores.sqlite import SqliteEventStore

if TYPE_CHECKING:
    from mcpbus.core.stores.redis_events import RedisEventStore

__all__ = [
    "EventLog",
    "EventStore",
    "MemoryEventStore",
    "Promise",
    "RedisEventStore",
    "Replay",
    "SqliteEventStore",
    "parse_event_id",
]


def __getattr__(name: str) -> Any:
    """Import what needs coredis when somebody asks for it: most do not, and it takes longer than all else."""
    if name == "RedisEventStore":
        from mcpbus.core.stores.redis_events import RedisEventStore  # noqa: PLC0415

        return RedisEventStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
