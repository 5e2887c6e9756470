"""An event store in Redis or Valkey: shared by processes and machines, and there when one of them has ended."""

from collections.abc import Awaitable, Sequence
from typing import Final

from mcpbus.core.stores.protocol import Replay
from mcpbus.core.stores.redis.commands import Script, Value
from mcpbus.core.stores.redis.connection import RedisConnection
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_positive

# A stream is a hash: its events by number, the first and the last number that it has, and whether it is at its end. Of all events
# together there is a sorted set, by when they came, and how many bytes they are. What has grown too old goes with the next event
# of anybody, or with its key. Of one event after the other in one stream the older goes first, also where clocks are set back.
_BEGIN: Final = """
local ages, sizes, prefix = KEYS[1], KEYS[2], ARGV[1]
local items, bytes, age = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000

local function key_of(session, stream) return prefix .. ':l:' .. session .. ':' .. stream end
local function streams_of(session) return prefix .. ':L:' .. session end

local function drop(member)
  local session, stream, number, size = string.match(member, '^(%S+) (%S+) 0*(%d+) (%d+)$')
  local key = key_of(session, stream)
  redis.call('ZREM', ages, member)
  redis.call('DECRBY', sizes, size)
  redis.call('HDEL', key, number)
  if tonumber(redis.call('HGET', key, 'last') or 0) <= tonumber(number) then
    redis.call('DEL', key)
    redis.call('SREM', streams_of(session), stream)
  else
    redis.call('HSET', key, 'first', number + 1)
  end
end

local function evict()
  for _ = 1, 1000 do
    local oldest = redis.call('ZRANGE', ages, 0, 0, 'WITHSCORES')
    if not oldest[1] then return end
    local fits = redis.call('ZCARD', ages) <= items and tonumber(redis.call('GET', sizes) or 0) <= bytes
    if fits and oldest[2] + age >= now then return end
    drop(oldest[1])
  end
end
"""

_APPEND: Final = Script(
    _BEGIN
    + """
local session, stream, first, final = ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]
local key = key_of(session, stream)
local last = tonumber(redis.call('HGET', key, 'last') or 0)
local newest = redis.call('ZRANGE', ages, -1, -1, 'WITHSCORES')[2]
local moment = math.max(now, tonumber(newest or 0))
for i = 9, #ARGV do
  local number = first + i - 9
  if number > last then
    last = number
    redis.call('HSETNX', key, 'first', number)
    redis.call('HSET', key, number, ARGV[i])
    redis.call('ZADD', ages, moment, string.format('%s %s %015d %d', session, stream, number, #ARGV[i]))
    redis.call('INCRBY', sizes, #ARGV[i])
  end
end
redis.call('HSET', key, 'last', last, 'final', final)
redis.call('SADD', streams_of(session), stream)
for _, each in ipairs({key, streams_of(session), ages, sizes}) do redis.call('PEXPIRE', each, age) end
evict()
"""
)

_REPLAY: Final = Script(
    _BEGIN
    + """
evict()
local key, after = key_of(ARGV[5], ARGV[6]), tonumber(ARGV[7])
local known = redis.call('HMGET', key, 'first', 'last', 'final')
if not known[1] or after < known[1] - 1 or after > tonumber(known[2]) then return nil end
local found = {known[3]}
for number = after + 1, known[2] do table.insert(found, redis.call('HGET', key, number)) end
return found
"""
)

_FORGET: Final = Script(
    _BEGIN
    + """
local session, dropped = ARGV[5], 0
for _, stream in ipairs(redis.call('SMEMBERS', streams_of(session))) do
  local key = key_of(session, stream)
  local known = redis.call('HMGET', key, 'first', 'last')
  for number = known[1] or 1, known[2] or 0 do
    if dropped == 1000 then return 1 end
    dropped = dropped + 1
    drop(string.format('%s %s %015d %d', session, stream, number, redis.call('HSTRLEN', key, number)))
  end
end
return 0
"""
)


@explained
class RedisEventStore:
    """Keeps events in Redis or Valkey, the newest of them, within bounds over all streams together.

    Processes that share it have the same bounds. What Redis is told, it has on its disk as it is configured to.

    Args:
        url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, or ``unix:///path/to/socket``.
        namespace: What is kept under another name is another store's.
        max_items: How many events.
        max_bytes: How many bytes of events.
        max_age: For how many seconds each.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        max_items: int = 1_000_000,
        max_bytes: int = 256 * 1024 * 1024,
        max_age: float = 3600.0,
    ) -> None:
        check_positive(type(self).__name__, max_items=max_items, max_bytes=max_bytes, max_age=max_age)
        self._redis = RedisConnection(url)
        self._prefix = f"{{mcpbus:{namespace}}}"
        self._keys = [f"{self._prefix}:ages", f"{self._prefix}:sizes"]
        self._bounds = [max_items, max_bytes, round(max_age * 1000)]

    def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> Awaitable[None]:
        """See `EventStore.append`."""
        arguments: list[Value] = [self._prefix, *self._bounds, session, stream, first, int(final), *events]
        return self._redis.run_soon(_APPEND, self._keys, arguments)

    async def replay(self, session: str, stream: str, after: int) -> Replay | None:
        """See `EventStore.replay`."""
        found = await self._run(_REPLAY, session, stream, after)
        return None if found is None else Replay(found[1:], found[0] == b"1")

    async def forget(self, session: str) -> None:
        """See `EventStore.forget`. It costs what that session stored, and others have their turn meanwhile."""
        while await self._run(_FORGET, session):
            pass

    def close(self) -> None:
        """Close the connection. The store cannot be used any more."""
        self._redis.close()

    async def _run(self, script: Script, *arguments: bytes | str | int) -> list[bytes] | None:
        answer: list[bytes] | None = await self._redis.run(
            script, self._keys, [self._prefix, *self._bounds, *arguments]
        )
        return answer
