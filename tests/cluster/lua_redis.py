"""A Redis in memory, on virtual time: as much of it as the directory of sessions uses, with its scripts run by a real Lua."""

import functools

import trio
from lupa import lua51

from mcpbus.core.stores.redis.commands import RedisRefusalError


class LuaRedis:
    """Holds keys, and does what it is asked at once, as a Redis that nobody is far from.

    Attributes:
        done: Called with each script that has run, its keys and arguments, and what it returned.
    """

    def __init__(self):
        self.done = lambda *_: None
        self._data = {}
        self._expires = {}
        self._lua = lua51.LuaRuntime(encoding=None)
        self._lua.globals().redis = self._lua.table_from(
            {b"call": lambda *said: self._to_lua(self.call(*said)), b"error_reply": self._refuse}
        )

    def call(self, name, *arguments):
        """Do one command, and return what Redis answers."""
        self._expire()
        return getattr(self, "_" + _bytes(name).decode().lower())(*map(_bytes, arguments))

    def run(self, script, keys, arguments):
        """Run a script, and return what Redis answers."""
        keys, arguments = [*map(_bytes, keys)], [*map(_bytes, arguments)]
        answer = self._from_lua(
            self._compiled(script)(self._lua.table_from(keys), self._lua.table_from(arguments))
        )
        self.done(script, keys, arguments, answer)
        return answer

    def copy(self):
        """Return what there is, as a replica of this Redis has it."""
        return {key: _copied(value) for key, value in self._data.items()}, dict(self._expires)

    def restore(self, data, expires):
        """Go on with what a replica had."""
        self._data, self._expires = data, expires

    # -- scripts -----------------------------------------------------------------------------------

    @functools.cache  # noqa: B019 - it lives as long as its test
    def _compiled(self, script):
        return self._lua.eval(b"function(KEYS, ARGV) " + script.text.encode() + b" end")

    def _to_lua(self, value):
        if value is None:
            return False
        return (
            self._lua.table_from([self._to_lua(each) for each in value]) if isinstance(value, list) else value
        )

    def _from_lua(self, value):
        if value is None or value is False:
            return None
        if isinstance(value, float):
            return int(value)
        if isinstance(value, (bytes, int)):
            return value
        return [self._from_lua(value[number]) for number in range(1, len(value) + 1)]

    @staticmethod
    def _refuse(said):
        raise RedisRefusalError(said.decode())

    # -- commands ----------------------------------------------------------------------------------

    def _expire(self):
        for key in [key for key, due in self._expires.items() if due <= _now()]:
            self._del(key)

    def _del(self, *keys):
        for key in keys:
            self._expires.pop(key, None)
            self._data.pop(key, None)

    def _exists(self, key):
        return int(key in self._data)

    def _get(self, key):
        return self._data.get(key)

    def _set(self, key, value, *options):
        if (b"NX" in options and key in self._data) or (b"XX" in options and key not in self._data):
            return None
        self._data[key] = value
        self._expires.pop(key, None)
        if b"PX" in options:
            self._pexpire(key, options[options.index(b"PX") + 1])
        return b"OK"

    def _pexpire(self, key, milliseconds):
        if key in self._data:
            self._expires[key] = _now() + int(float(milliseconds))
        return int(key in self._data)

    def _pttl(self, key):
        return int(self._expires[key] - _now()) if key in self._expires else -1 if key in self._data else -2

    @staticmethod
    def _time():
        now = trio.current_time()
        return [b"%d" % now, b"%d" % (now % 1 * 1e6)]

    def _hget(self, key, field):
        return self._data.get(key, {}).get(field)

    def _hmget(self, key, *fields):
        return [self._hget(key, field) for field in fields]

    def _hgetall(self, key):
        return [part for pair in self._data.get(key, {}).items() for part in pair]

    def _hset(self, key, *pairs):
        self._data.setdefault(key, {}).update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(pairs) // 2

    def _hdel(self, key, *fields):
        for field in fields:
            self._data.get(key, {}).pop(field, None)
        if not self._data.get(key, True):
            self._del(key)

    def _hincrby(self, key, field, by):
        value = int(self._hget(key, field) or 0) + int(by)
        self._hset(key, field, b"%d" % value)
        return value

    def _zadd(self, key, score, member):
        self._data.setdefault(key, {})[member] = float(score)

    def _zrange(self, key, *_):
        return [*self._data.get(key, {})]

    def _zrem(self, key, *members):
        self._hdel(key, *members)

    def _zrangebyscore(self, key, low, high):
        return [each for each, score in self._data.get(key, {}).items() if float(low) <= score <= float(high)]

    def _zremrangebyscore(self, key, low, high):
        self._hdel(key, *self._zrangebyscore(key, low, high))


def _now():
    return trio.current_time() * 1000


def _bytes(value):
    """Write a value as Redis reads it; Lua's numbers are written as those of Redis."""
    if isinstance(value, float):
        value = f"{value:.17g}"
    return value if isinstance(value, bytes) else str(value).encode()


def _copied(value):
    return dict(value) if isinstance(value, dict) else value
