"""Processes on any machines, which find each other in Redis or Valkey."""

import logging
import math
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
import trio

from mcpbus.cluster import redis_scripts as scripts
from mcpbus.cluster import tcp
from mcpbus.cluster.directory import (
    Accept,
    FencedError,
    JoinError,
    SessionClaim,
    StoredHeldMessage,
    StoredSession,
    released_home,
    unreachable_directory,
)
from mcpbus.cluster.tcp import HostPort, TlsPair
from mcpbus.core.lease import Lease, elapsed
from mcpbus.core.stores.redis.commands import RedisError, Script, Value
from mcpbus.core.stores.redis.connection import RedisConnection

_log = logging.getLogger("mcpbus")

_KEY_BYTES: Final = 32
_KEY_WAIT: Final = 0.4
"""Of its lease, for how long a process waits at its start for a common key: those that live put it back when they renew theirs."""
_KEY_PAUSE: Final = 0.05
"""Between two looks whether one of them has."""
_OUTLAST_SECONDS: Final = 60.0
"""How much longer than it may be idle a session is kept."""
_LONGEST_SECONDS: Final = 1e9
_FIRST_SECONDS: Final = 3600.0
"""For how long it is kept before anybody has said for how long it may be idle."""
_RENEWALS: Final = 4
"""How often what is kept is renewed in the time after which it would be forgotten."""
_AT_ONCE: Final = 500
_RENEW: Final = 0.3
"""Of its lease, after which a process renews that."""
_MARGIN: Final = 0.1
_LONGEST_MARGIN: Final = 0.5
"""How much earlier than in Redis its lease lapses for a process: that part of it, and no more than so many seconds."""
_REFILL: Final = 2
"""Leases after which all that live have put back what Redis had lost."""


class RedisDirectory:
    """A `ClusterDirectory` in Redis or Valkey.

    A process is there as long as it renews its lease. Whose lease has lapsed may live nevertheless, cut off or paused: what it
    had is given to others, and epochs keep it from writing.

    Args:
        redis: The connection.
        prefix: What all keys begin with.
        link: Where this process listens for the others.
        advertise: Where the others find it.
        lease: Seconds after which a process that is not heard of has ended.
        tls: How links are encrypted; None if they are not.
    """

    def __init__(
        self,
        redis: RedisConnection,
        prefix: str,
        *,
        link: HostPort,
        advertise: HostPort,
        lease: float,
        tls: TlsPair | None,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._link = link
        self._advertise = advertise
        self._lease = lease
        self._tls = tls
        self._seconds = _FIRST_SECONDS
        self._due: dict[str, float] = {}
        self._all_tended = -math.inf
        self._key: bytes | None = None
        self._data_set: bytes | None = None
        self._found_data_set: bytes | None = None
        self._in_doubt = False
        self._granted = Lease()
        self._renewed_until = -math.inf
        self._is_sure = True
        self._refilled_at = -math.inf
        self._renewal = _new_name()

    async def common_key(self) -> bytes:
        """Return a key that all have who use this Redis, and nobody else. Where there is none, Redis may have lost it a moment ago."""
        place = f"{self._prefix}:K"
        until = trio.current_time() + _KEY_WAIT * self._lease
        while await self._redis.call("GET", place) is None and trio.current_time() < until:  # noqa: ASYNC110 - Redis tells nobody
            await trio.sleep(_KEY_PAUSE)
        await self._redis.call("SET", place, os.urandom(_KEY_BYTES), "NX")
        key = await self._redis.call("GET", place)
        assert isinstance(key, bytes)  # noqa: S101 - it was set above
        self._key = key
        return key

    # -- processes -------------------------------------------------------------------------------

    async def listen(
        self,
        home: str,
        accept: Accept,
        lease: Lease,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """See `ClusterDirectory`."""
        self._granted = lease
        listener = await tcp.listen(self._link)
        port = listener.socket.getsockname()[1]
        place = attrs.evolve(self._advertise, port=self._advertise.port or port)
        try:
            await self._renew(home, place)
        except RedisError as error:
            raise JoinError(str(error)) from error
        self._in_doubt = False
        self._be_sure()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_renewing, home, place)
                task_status.started()
                await tcp.serve(listener, accept, self._tls)
        finally:
            with trio.move_on_after(1, shield=True):
                await self.forget(home)

    async def _keep_renewing(self, home: str, place: HostPort) -> None:
        while True:
            await trio.sleep(self._lease * _RENEW)
            try:
                await self._renew(home, place)
            except RedisError:
                continue  # the connection says so to the log

    async def _renew(self, home: str, place: HostPort) -> None:
        keys = [f"{self._prefix}:{name}" for name in (f"r:{home}", "R", "E")]
        milliseconds = round(self._lease * 1000)
        asked_at = elapsed()
        was, data_set, age = await self._redis.run(
            scripts.LEASE, keys, [home, str(place), milliseconds, self._renewal]
        )
        if self._data_set is None:
            self._data_set = data_set
        if self._found_data_set != data_set:
            if self._key is not None:
                await self._put_back(self._key)
            # A Redis that took over may have another time: what began in its future begins now.
            self._refilled_at = trio.current_time() + _REFILL * self._lease - max(age, 0) / 1000
        self._found_data_set = data_set
        # By its own time it lapses earlier than in Redis.
        lapsed = not was or elapsed() > self._renewed_until
        self._renewed_until = asked_at + self._lease - min(_MARGIN * self._lease, _LONGEST_MARGIN)
        if lapsed or data_set != self._data_set:
            self._in_doubt = True
            self._is_sure = False
        elif self._is_sure:
            self._be_sure()
        # Not before: one of which no answer came may have found that the lease had lapsed, and is told so again.
        self._renewal = _new_name()

    async def _put_back(self, key: bytes) -> None:
        """Have who begins from now on have the common key as well."""
        place = f"{self._prefix}:K"
        await self._redis.call("SET", place, key, "NX")
        if await self._redis.call("GET", place) != key:
            _log.error(
                "Redis lost the key that replicas have in common, and those that have begun since then have another one: they know no session "
                "of this one. Restart those, or this one; with Server(secret_keys=[...]) none is kept in Redis"
            )

    def _be_sure(self) -> None:
        """Have it be known that the sessions are the process's, for as long as it was renewed."""
        self._is_sure = True
        self._granted.extend(self._renewed_until)

    async def forget(self, home: str) -> None:
        """Have a process that has ended be known for that before its lease lapses."""
        try:
            await self._redis.call("ZREM", f"{self._prefix}:R", home)
            await self._redis.call("DEL", f"{self._prefix}:r:{home}")
        except RedisError:
            return  # its lease lapses

    async def homes(self) -> Collection[str]:
        """See `ClusterDirectory`."""
        homes = await self._redis.run(scripts.HOMES, [f"{self._prefix}:R"])
        return [home.decode() for home in homes]

    async def dial(self, home: str) -> trio.abc.Stream | None:
        """See `ClusterDirectory`."""
        try:
            place = await self._redis.call("GET", f"{self._prefix}:r:{home}")
        except RedisError as error:
            raise unreachable_directory() from error
        return None if place is None else await tcp.dial(HostPort.parse(place.split()[0].decode()), self._tls)

    # -- sessions --------------------------------------------------------------------------------

    async def create(self, ownership: SessionClaim, record: bytes) -> None:
        """See `ClusterDirectory`."""
        await self._write(scripts.CREATE, ownership, record, self._milliseconds)

    async def update(self, ownership: SessionClaim, record: bytes) -> None:
        """See `ClusterDirectory`. What Redis has lost is put back."""
        if await self._write(scripts.UPDATE, ownership, record, self._milliseconds) == scripts.MISSING:
            await self._check_loss()
            await self.create(ownership, record)

    async def remove(self, ownership: SessionClaim) -> None:
        """See `ClusterDirectory`."""
        await self._write(scripts.REMOVE, ownership)

    async def append_held(
        self, ownership: SessionClaim, held: Mapping[str, StoredHeldMessage], gone: Collection[str]
    ) -> None:
        """See `ClusterDirectory`."""
        said: list[Value] = [len(held)]
        for name, each in held.items():
            said += [name, max(1, round(min(each.seconds, _LONGEST_SECONDS) * 1000)), each.data]
        if await self._write(scripts.HOLD, ownership, *said, *gone) == scripts.MISSING:
            await self._check_loss()
            raise OSError("Redis has lost the session, and is to be told of it before")

    async def pop_held(self, ownership: SessionClaim, names: Collection[str]) -> None:
        """See `ClusterDirectory`."""
        if await self._write(scripts.HOLD, ownership, 0, *names) == scripts.MISSING:
            await self._check_loss()

    async def release(self, ownerships: Sequence[SessionClaim]) -> None:
        """See `ClusterDirectory`."""
        for first in range(0, len(ownerships), _AT_ONCE):
            some = ownerships[first : first + _AT_ONCE]
            asked: list[Value] = [some[0].home, released_home(some[0].home)]
            asked += [ownership.epoch for ownership in some]
            keys = [self._keys(ownership.name)[0] for ownership in some]
            if await self._redis.run(scripts.RELEASE, keys, asked) == scripts.MISSING:
                with suppress(FencedError):
                    await self._check_loss()
                    raise OSError("Redis has lost a session, and is to be told of it before")

    async def _check_loss(self) -> None:
        """Find that Redis has lost a session that it does not keep.

        Raises:
            FencedError: It has not: another process took it over, and there it has ended.
        """
        if await self._redis.call("GET", f"{self._prefix}:E") == self._data_set:
            raise FencedError

    async def _write(self, script: Script, ownership: SessionClaim, *arguments: Value) -> int:
        said: list[Value] = [ownership.home, ownership.epoch, *arguments]
        done = await self._redis.run(script, self._keys(ownership.name), said)
        if done == scripts.FENCED:
            raise FencedError
        return int(done)

    async def get(self, name: str) -> StoredSession | None:
        """See `ClusterDirectory`."""
        kept = _kept(name, await self._redis.run(scripts.LOOK, self._keys(name)))
        if kept is None and await self._may_be_put_back():
            raise OSError("Redis has lost what it knew, and is told it anew")
        return kept

    async def _may_be_put_back(self) -> bool:
        """Return whether what is not kept may be known to another process, which has had no time to say so."""
        data_set = await self._redis.call("GET", f"{self._prefix}:E")
        return data_set != self._found_data_set or trio.current_time() < self._refilled_at

    async def claim(self, name: str, ended: str, home: str) -> StoredSession | None:  # noqa: ARG002 - its lease tells
        """See `ClusterDirectory`."""
        asked: list[Value] = [home, f"{self._prefix}:r:", self._milliseconds]
        return _kept(name, await self._redis.run(scripts.CLAIM, self._keys(name), asked))

    async def claim_round(self, name: str, user: str, seconds: float) -> bool:
        """See `ClusterDirectory`."""
        place, milliseconds = f"{self._prefix}:q:{name}", max(1, round(seconds * 1000))
        if await self._redis.call("SET", place, user, "NX", "PX", milliseconds) is not None:
            return True
        return bool(await self._redis.call("GET", place) == user.encode())

    async def maintain(self, sessions: Collection[SessionClaim], seconds: float) -> Collection[str]:
        """See `ClusterDirectory`."""
        self._seconds = min(seconds + _OUTLAST_SECONDS, _LONGEST_SECONDS)
        now, found = trio.current_time(), self._found_data_set
        # As long as others put back what Redis had lost, there may be a later epoch than this process has put back before them.
        all_of_them = self._in_doubt or self._all_tended < self._refilled_at
        self._in_doubt = False
        # What has just come here Redis may lose unseen, if a replica of it that is behind takes its place: by less than a lease, or
        # leases have lapsed there. So each session is looked at once after that time.
        self._due = {session.name: self._due.get(session.name, now + self._lease) for session in sessions}
        due = [session for session in sessions if all_of_them or self._due[session.name] <= now]
        doubtful: list[str] = []
        try:
            for begin in range(0, len(due), _AT_ONCE):
                doubtful += await self._tend(due[begin : begin + _AT_ONCE])
        except RedisError:
            self._in_doubt |= all_of_them
            raise
        later = now + self._seconds / _RENEWALS
        self._due.update((session.name, later) for session in due if self._due[session.name] <= now)
        if all_of_them:
            self._all_tended = now
        if doubtful:
            self._in_doubt = True  # until each was put back, or has been lost
        else:
            self._data_set = found
            if not self._is_sure and not self._in_doubt:
                self._be_sure()
        return doubtful

    async def _tend(self, sessions: Sequence[SessionClaim]) -> list[str]:
        keys = [self._keys(session.name)[0] for session in sessions]
        asked: list[Value] = [sessions[0].home, self._milliseconds]
        asked += [session.epoch for session in sessions]
        said = await self._redis.run(scripts.TEND, keys, asked)
        return [session.name for session, done in zip(sessions, said, strict=True) if done != scripts.DONE]

    @property
    def _milliseconds(self) -> int:
        return round(self._seconds * 1000)

    def _keys(self, name: str) -> list[str]:
        """Return where a session is, and the messages that wait for its client."""
        return [f"{self._prefix}:s:{name}", f"{self._prefix}:h:{name}"]


def _new_name() -> str:
    return secrets.token_hex(8)


def _kept(name: str, found: Sequence[Any] | None) -> StoredSession | None:
    """Read what Redis tells of a session."""
    if found is None:
        return None
    owner, epoch, record, now, messages = found
    held = {}
    for each, message in zip(messages[::2], messages[1::2], strict=True):
        expires, _, data = message.partition(b" ")
        held[each.decode()] = StoredHeldMessage(data, (int(expires) - now) / 1000)
    return StoredSession(SessionClaim(name, owner.decode(), int(epoch)), record, held)
