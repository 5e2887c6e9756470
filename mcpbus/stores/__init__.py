"""Event stores: what lets a legacy client come back to a stream that it lost."""

from mcpbus.stores.log import EventLog, parse_event_id
from mcpbus.stores.memory import MemoryEventStore
from mcpbus.stores.protocol import EventStore, Replay
from mcpbus.stores.sqlite import SqliteEventStore

__all__ = ["EventLog", "EventStore", "MemoryEventStore", "Replay", "SqliteEventStore", "parse_event_id"]
