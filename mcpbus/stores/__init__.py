"""Event stores: what lets a legacy client come back to a stream that it lost."""

from typing import TYPE_CHECKING

from mcpbus.core.event_log import EventLog, parse_event_id
from mcpbus.core.stores.memory import MemoryEventStore
from mcpbus.core.stores.protocol import EventStore, Promise, Replay
from mcpbus.core.stores.sqlite.stores import SqliteEventStore
from mcpbus.protocol.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from mcpbus.core.stores.redis.events import RedisEventStore
else:
    # It needs coredis: most do not, and it takes longer than all else.
    __getattr__, __dir__ = lazy_exports(__name__, {"mcpbus.core.stores.redis.events": ("RedisEventStore",)})

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
