"""A task store in Redis or Valkey: shared by processes and machines, and there when one of them has ended."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Final

import msgspec
import trio

from mcpbus.core.stores.protocol import TaskClaimedError
from mcpbus.core.stores.redis.commands import RedisError, Script, Value
from mcpbus.core.stores.redis.connection import RedisConnection
from mcpbus.core.tasks.record import TaskRecord
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_positive

# A task is a hash: the bus that has it, its record and its payload. All of them are in a sorted set, by when they go. That a bus
# lives, its lease says. When something goes is said in milliseconds from now: the clocks of buses may be far from that of Redis.
_PUT: Final = Script("""
local task, all = KEYS[1], KEYS[2]
local id, bus, record, payload, left = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local goes = string.format('%.0f', now + left)
local has = redis.call('HGET', task, 'bus')
if has and has ~= bus then return 0 end
redis.call('HSET', task, 'bus', bus, 'record', record, 'payload', payload)
redis.call('PEXPIREAT', task, goes)
redis.call('ZREMRANGEBYSCORE', all, '-inf', now)
redis.call('ZADD', all, goes, id)
redis.call('PEXPIREAT', all, redis.call('ZRANGE', all, -1, -1, 'WITHSCORES')[2])
return 1
""")

# Without a bus that has ended it is any that has no lease.
_CLAIM: Final = Script("""
local task, leases, ended, bus = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local has = redis.call('HGET', task, 'bus')
if not has then return nil end
if has == ended or (ended == '' and redis.call('EXISTS', leases .. has) == 0) then
  redis.call('HSET', task, 'bus', bus)
  has = bus
end
return {has, redis.call('HGET', task, 'record')}
""")

_DELETE: Final = Script("redis.call('DEL', KEYS[1]) redis.call('ZREM', KEYS[2], ARGV[1])")

_GRACE_MS: Final = 60_000
"""How much longer than its bus wants a task is kept, which deletes it."""
_RENEWALS: Final = 3
"""How often a lease is renewed in the time after which it would lapse."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TaskRecord).decode


@explained
class RedisTaskStore:
    """Keeps tasks in Redis or Valkey, for all processes that name the same one.

    Each bus has a lease there. The tasks of one that has ended, whose lease has lapsed, are for whoever opens next; where processes
    serve as one, for whoever is asked for them.

    Args:
        url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, or ``unix:///path/to/socket``.
        namespace: What is kept under another name is another store's.
        lease: Seconds after which a bus that is not heard of is taken for ended.
    """

    def __init__(self, url: str, *, namespace: str = "default", lease: float = 5.0) -> None:
        check_positive(type(self).__name__, lease=lease)
        self._redis = RedisConnection(url)
        self._prefix = f"{{mcpbus:{namespace}}}"
        self._all = f"{self._prefix}:tasks"
        self._lease = lease
        self._renewing: dict[str, trio.CancelScope] = {}
        self._told: dict[str, Callable[[], object]] = {}

    async def put(self, record: TaskRecord, payload: bytes | None) -> None:
        """See `TaskStore.put`."""
        left = round(record.seconds_left(time.time()) * 1000) + _GRACE_MS
        if not record.status.final:
            left += record.ttl_ms  # it is given as long again when it ends
        kept = b"" if payload is None else b"+" + payload  # what is empty is none
        arguments: list[Value] = [record.id, record.bus, _encode(record), kept, left]
        if not await self._redis.run(_PUT, [self._place(record.id), self._all], arguments):
            raise TaskClaimedError

    async def payload(self, task_id: str) -> bytes | None:
        """See `TaskStore.payload`."""
        kept: bytes | None = await self._redis.call("HGET", self._place(task_id), "payload")
        return kept[1:] if kept else None

    async def delete(self, task_id: str) -> None:
        """See `TaskStore.delete`."""
        await self._redis.run(_DELETE, [self._place(task_id), self._all], [task_id])

    async def claim(self, task_id: str, ended: str, bus: str) -> TaskRecord | None:
        """See `TaskStore.claim`."""
        found = await self._redis.run(_CLAIM, [self._place(task_id)], [self._lease_of(""), ended, bus])
        return None if found is None else _record(*found)

    def on_lapse(self, bus: str, tell: Callable[[], object]) -> None:
        """See `LeasedTaskStore.on_lapse`."""
        self._told[bus] = tell

    async def take_up(self, bus: str) -> Sequence[TaskRecord]:
        """See `TaskStore.take_up`."""
        await self._renew(bus)
        scope = self._renewing[bus] = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._keep, bus, scope, name="a lease in Redis", context=Context())
        tasks = await self._redis.call("ZRANGE", self._all, 0, -1)
        claimed = [await self.claim(task_id.decode(), "", bus) for task_id in tasks]
        return [record for record in claimed if record is not None and record.bus == bus]

    async def leave(self, bus: str) -> None:
        """See `TaskStore.leave`."""
        self._told.pop(bus, None)
        scope = self._renewing.pop(bus, None)
        if scope is not None:
            scope.cancel()
        await self._redis.call("DEL", self._lease_of(bus))

    async def load(self) -> Sequence[TaskRecord]:
        """Return all tasks that are kept, those first that go first."""
        tasks = await self._redis.call("ZRANGE", self._all, 0, -1)
        found = [
            await self._redis.call("HMGET", self._place(task_id.decode()), "bus", "record")
            for task_id in tasks
        ]
        return [_record(*kept) for kept in found if kept[0] is not None]

    def close(self) -> None:
        """Close the connection. The store cannot be used any more."""
        for scope in self._renewing.values():
            scope.cancel()
        self._redis.close()

    async def _keep(self, bus: str, scope: trio.CancelScope) -> None:
        """Renew a lease. Where Redis cannot be reached the connection has said so, and it may lapse."""
        lapsed = False
        with scope:
            while True:
                await trio.sleep(self._lease / _RENEWALS)
                with suppress(RedisError):
                    # Nobody else makes one of this name: where it is there, it was there all the time.
                    lapsed = lapsed or not await self._renew(bus, "XX")
                    if lapsed:
                        await self._renew(bus)
                        lapsed = False
                        if bus in self._told:
                            self._told[bus]()

    async def _renew(self, bus: str, *options: Value) -> bool:
        """Have a lease last from now on; whether it does, which options may depend on."""
        lease, milliseconds = self._lease_of(bus), round(self._lease * 1000)
        return await self._redis.call("SET", lease, "", "PX", milliseconds, *options) is not None

    def _place(self, task_id: str) -> str:
        return f"{self._prefix}:t:{task_id}"

    def _lease_of(self, bus: str) -> str:
        return f"{self._prefix}:b:{bus}"


def _record(bus: bytes, encoded: bytes) -> TaskRecord:
    """Return a record with the bus that has it now."""
    return msgspec.structs.replace(_decode(encoded), bus=bus.decode())
