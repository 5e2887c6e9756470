"""What Redis does in one step for the directory. Each may be run twice for one call, and the second time changes nothing.

Of each session there are two hashes: its owner `o`, the epoch `e`, and the record `b`; and the messages that wait for its client, each by name
with when it expires in front of it. Of each process there is a string that lapses.
"""

from typing import Final

from mcpbus.core.stores.redis.commands import Script

DONE: Final = 1
MISSING: Final = 0
FENCED: Final = -1

LEASE: Final = Script(
    """
local had, was = redis.call('GET', KEYS[1]), 0
if had then
  local name, found = string.match(had, ' (%S+) (%d)$')
  was = name == ARGV[4] and tonumber(found) or 1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[4] .. ' ' .. was, 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('SET', KEYS[3], ARGV[4] .. ' ' .. string.format('%.0f', now), 'NX')
local name = redis.call('GET', KEYS[3])
return {was, name, now - (string.match(name, ' (%d+)$') or 0)}
"""
)
"""Keys: the process, all processes, the data set. Arguments: home, place, milliseconds, a name that no renewal had before.

Returns whether the lease was there, the name of the data set, which ends with its time, and the milliseconds since then. What is kept of
the process is its place, and of its last renewal the name, and whether the lease was there.
"""

HOMES: Final = Script(
    """
local time = redis.call('TIME')
return redis.call('ZRANGEBYSCORE', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000), '+inf')
"""
)
"""Keys: all processes. Returns those whose lease has not lapsed."""

_GUARD: Final = """
local function guard(key, home, epoch)
  local had = redis.call('HMGET', key, 'o', 'e')
  if not had[2] then return 0 end
  local known = tonumber(had[2])
  if known > tonumber(epoch) or known == tonumber(epoch) and had[1] ~= home then return -1 end
  return 1
end
"""
"""Returns 1 where a process may write in its epoch, which is the highest, -1 where not, and 0 where the session is not kept.

Redis may have lost a later epoch than the one that it knows: who has the higher one puts it back.
"""

_WRITE: Final = """
redis.call('HSET', KEYS[1], 'o', ARGV[1], 'e', ARGV[2], 'b', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""

CREATE: Final = Script(
    _GUARD
    + """
if guard(KEYS[1], ARGV[1], ARGV[2]) == -1 then return -1 end
"""
    + _WRITE
)
"""Keys: the session. Arguments: home, epoch, record, milliseconds. Returns what the guard does."""

UPDATE: Final = Script(
    _GUARD
    + """
local may = guard(KEYS[1], ARGV[1], ARGV[2])
if may ~= 1 then return may end
"""
    + _WRITE
)
"""The same, where the session is kept."""

REMOVE: Final = Script(
    _GUARD
    + """
local may = guard(KEYS[1], ARGV[1], ARGV[2])
if may == 1 then redis.call('DEL', KEYS[1], KEYS[2]) end
return may
"""
)
"""Keys: the session, its messages. Arguments: home, epoch. Returns what the guard does."""

RELEASE: Final = Script(
    _GUARD
    + """
local all = 1
for number, key in ipairs(KEYS) do
  local epoch = ARGV[number + 2]
  local may = guard(key, ARGV[1], epoch)
  if may == 1 then redis.call('HSET', key, 'o', ARGV[2], 'e', string.format('%d', epoch + 1)) end
  if may == 0 then all = 0 end
end
return all
"""
)
"""Keys: sessions. Arguments: home, the home that has them next, the epoch of each. Returns 0 where one of them is not kept, and else 1."""

_NOW: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

HOLD: Final = Script(
    _GUARD
    + _NOW
    + """
local may = guard(KEYS[1], ARGV[1], ARGV[2])
if may ~= 1 then return may end
local held, longest = 3 + 3 * ARGV[3], redis.call('PTTL', KEYS[2])
for i = 4, held, 3 do
  redis.call('HSET', KEYS[2], ARGV[i], string.format('%d ', now + ARGV[i + 1]) .. ARGV[i + 2])
  longest = math.max(longest, tonumber(ARGV[i + 1]))
end
for i = held + 1, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
redis.call('PEXPIRE', KEYS[2], longest)
return 1
"""
)
"""Keys: the session, its messages. Arguments: home, epoch, how many are held, of each the name, milliseconds and data, the names of those
that are gone. Returns what the guard does.
"""

_TOLD: Final = """
local had = redis.call('HMGET', KEYS[1], 'o', 'e', 'b')
if not had[2] then return false end
return {had[1], had[2], had[3], now, redis.call('HGETALL', KEYS[2])}
"""

LOOK: Final = Script(_NOW + _TOLD)
"""Keys: the session, its messages. Returns owner, epoch, record, the time, and the messages; nothing if there is no such session."""

CLAIM: Final = Script(
    _NOW
    + """
local owner = redis.call('HGET', KEYS[1], 'o')
if owner and owner ~= ARGV[1] and redis.call('EXISTS', ARGV[2] .. owner) == 0 then
  if redis.call('EXISTS', ARGV[2] .. ARGV[1]) == 0 then return redis.error_reply('LEASE this process has none') end
  redis.call('HINCRBY', KEYS[1], 'e', 1)
  redis.call('HSET', KEYS[1], 'o', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
"""
    + _TOLD
)
"""Keys: the session, its messages. Arguments: home, the prefix of processes, milliseconds. Returns what LOOK does."""

TEND: Final = Script(
    _GUARD
    + """
local said = {}
for number, key in ipairs(KEYS) do
  local epoch = ARGV[number + 2]
  local is_own = guard(key, ARGV[1], epoch) == 1 and redis.call('HGET', key, 'e') == epoch
  if is_own then redis.call('PEXPIRE', key, ARGV[2]) end
  said[number] = is_own and 1 or 0
end
return said
"""
)
"""Keys: sessions. Arguments: home, milliseconds, the epoch of each. Returns 1 for each that is the process's."""
