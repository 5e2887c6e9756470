"""Event stores: what lets a legacy client come back to a stream that it lost."""

from mcpbus.core.event_log import EventLog, parse_event_id
from mcpbus.core.stores.memory import MemoryEventStore
from mcpbus.core.stores.protocol import EventStore, Replay
from mcpbus.core.stores.sqlite import SqliteEventStore

__all__ = ["EventLog", "EventStore", "MemoryEventStore", "Replay", "SqliteEventStore", "parse_event_id"]
