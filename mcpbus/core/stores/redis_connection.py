"""A connection to Redis or Valkey: one, on which all commands are under way at once, and which is made anew when it is lost."""

import hashlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import cached_property
from typing import Any, Final, TypeAlias

import attrs
import trio

from mcpbus.core.stores.promise import Promise
from mcpbus.core.stores.redis_url import check_redis_url

try:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from coredis.connection import BaseConnection
    from coredis.exceptions import (
        AuthenticationFailureError,
        AuthenticationRequiredError,
        BusyLoadingError,
        NoScriptError,
        ReadOnlyError,
        ResponseError,
        UnknownCommandError,
    )
    from coredis.pool import ConnectionPool
except ImportError as error:
    raise ImportError(
        "Redis and Valkey are spoken to by coredis, which mcpbus itself does without: pip install 'mcpbus-server[cluster]'",
        name=error.name,
    ) from error

_log = logging.getLogger("mcpbus")

_OLDEST: Final = (6, 2)
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two attempts to connect: each pause is twice the last one."""

Value: TypeAlias = bytes | str | int | float


class RedisError(OSError):
    """Redis did not do what it was asked to; the message says why, in one line."""


class RedisDownError(RedisError):
    """It cannot be reached, or not be used. Whether it did what it was asked to is not known."""


class RedisRefusalError(RedisError):
    """It answered with an error."""


@attrs.frozen
class Script:
    """A script in Lua that Redis runs as one step.

    It may be run twice for one call, where the connection is lost meanwhile, and has to harm nothing then.

    Attributes:
        text: The script.
    """

    text: str

    @cached_property
    def digest(self) -> str:
        """By what Redis knows it, once it has run."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@attrs.define(eq=False, kw_only=True)
class _Sent(Promise):
    """A script that was sent, of whose answer one task hears for all.

    Attributes:
        connection: On which it was sent.
        answer: What is answered there, to be awaited; it is `complete` when that has come, or will not.
        again: Runs it once more, within so many seconds.
        until: When it takes too long.
    """

    connection: BaseConnection
    answer: Any
    again: Callable[[float], Awaitable[Any]]
    until: float


class RedisConnection:
    """One connection. It is made when something is asked for, and from then on whenever it was lost, until `close`.

    Args:
        url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, or ``unix:///path/to/socket``.
        timeout: Seconds that a command may take, those included until there is a connection.

    Raises:
        ValueError: It is no such URL.
    """

    def __init__(self, url: str, *, timeout: float = 1.0) -> None:
        check_redis_url(url)
        scheme, _, place = url.partition("://")
        # Without the password.
        self._where = f"Redis at {scheme}://{place.rpartition('@')[2].partition('?')[0]}"
        self._url = url
        self._timeout = timeout
        self._connection: BaseConnection | None = None
        self._failure: RedisDownError | None = None
        self._final = False
        self._changed = trio.Event()
        self._running: trio.CancelScope | None = None
        self._closed = False
        self._sent: deque[_Sent] = deque()
        self._hears = False  # whether a task does of what was sent

    async def call(self, *command: Value, within: float | None = None) -> Any:
        """Have Redis do something that may be done twice, where the connection is lost meanwhile; return what it answers.

        Args:
            command: The command and its arguments.
            within: Seconds that it may take; None for those of the connection.

        Raises:
            RedisDownError: It could not be reached in that time.
            RedisRefusalError: It answered with an error.
        """
        name, *arguments = command
        return await self._use(within, lambda connection: _send(connection, _encoded(name), arguments))

    async def run(
        self,
        script: Script,
        keys: Sequence[Value] = (),
        arguments: Sequence[Value] = (),
        *,
        within: float | None = None,
    ) -> Any:
        """Run a script, as `call`."""

        async def send(connection: BaseConnection) -> Any:
            rest = [len(keys), *keys, *arguments]
            try:
                return await _send(connection, b"EVALSHA", [script.digest, *rest])
            except NoScriptError:
                return await _send(connection, b"EVAL", [script.text, *rest])

        return await self._use(within, send)

    def run_soon(
        self, script: Script, keys: Sequence[Value] = (), arguments: Sequence[Value] = ()
    ) -> Awaitable[Any]:
        """Run a script as `run`: a `Promise` of it if it could be sent at once, so that no task has to wait for it."""
        connection = self._connection
        if connection is None or not connection.usable:
            return self.run(script, keys, arguments)
        sent = _Sent(
            connection=connection,
            answer=_send(connection, b"EVALSHA", [script.digest, len(keys), *keys, *arguments]),
            again=lambda seconds: self.run(script, keys, arguments, within=seconds),
            until=trio.current_time() + self._timeout,
        )
        self._sent.append(sent)
        if not self._hears:
            self._hears = True
            trio.lowlevel.spawn_system_task(self._hear_all, name="what Redis answers", context=Context())
        return sent

    def close(self) -> None:
        """Close it. It cannot be used any more."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()

    async def _use(self, within: float | None, send: Callable[[BaseConnection], Awaitable[Any]]) -> Any:
        """Use a connection, and the next ones where it is lost meanwhile."""
        seconds = self._timeout if within is None else within
        connection = None
        with trio.move_on_after(seconds):
            while True:
                connection = await self._connected()
                began = trio.current_time()
                try:
                    return await send(connection)
                except trio.Cancelled:
                    if trio.current_time() - began >= seconds / 2:
                        connection.invalidate()  # the network may be dead, and say nothing
                    raise
                except (BusyLoadingError, ReadOnlyError) as error:  # another one may take its place
                    self._failure = RedisDownError(f"{self._where} cannot be used now: {error}")
                    connection.invalidate()
                except ResponseError as error:
                    raise RedisRefusalError(f"{self._where} answered with an error: {error}") from None
                except Exception:  # noqa: BLE001 - whatever ended the connection
                    connection.invalidate()
                connection = None
        if connection is not None:
            raise self._silent(seconds)
        raise self._failure or RedisDownError(f"{self._where} could not be reached within {seconds:g} s")

    async def _connected(self) -> BaseConnection:
        await trio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise RedisDownError("the connection to Redis is closed")
            if self._running is None:
                self._running = trio.CancelScope()
                self._failure, self._final = None, False
                trio.lowlevel.spawn_system_task(
                    self._keep, self._running, name="a connection to Redis", context=Context()
                )
            if self._connection is not None and self._connection.usable:
                return self._connection
            if self._final and self._failure is not None:
                raise self._failure
            await self._changed.wait()

    # -- the task that hears of what was sent ------------------------------------------------------

    async def _hear_all(self) -> None:
        """Hear of what was sent, in the order in which it is answered."""
        try:
            while self._sent:
                sent = self._sent.popleft()
                try:
                    sent.result = await self._hear(sent)
                except Exception as error:  # noqa: BLE001 - whoever waits for it is told
                    sent.error = error
                sent.end()
        finally:
            self._hears = False
            self._sent.clear()

    async def _hear(self, sent: _Sent) -> Any:
        if not sent.answer.complete:  # many come together
            with trio.CancelScope(deadline=sent.until), suppress(Exception):
                await sent.answer
        if not sent.answer.complete:
            sent.connection.invalidate()  # the network may be dead, and say nothing
            raise self._silent(self._timeout)
        with suppress(Exception):
            return await sent.answer
        # The script was forgotten, or the connection lost, or it is refused, which is then so once more.
        return await sent.again(max(0, sent.until - trio.current_time()))

    def _silent(self, seconds: float) -> RedisDownError:
        return RedisDownError(f"{self._where} did not answer within {seconds:g} s")

    # -- the task that keeps the connection --------------------------------------------------------

    async def _keep(self, running: trio.CancelScope) -> None:
        """Connect, and do so again when the connection is lost."""
        pause = _PAUSE
        try:
            with running:
                while True:
                    if await self._connect():
                        pause = _PAUSE
                    await trio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._running = None
            self._change(None)

    async def _connect(self) -> bool:
        """Connect, and return when that connection is lost; whether there was one."""
        try:
            connection = _make(self._url, self._timeout)
            with _closing(connection):
                async with trio.open_nursery() as nursery:
                    await nursery.start(connection.run)
                    _check_version(connection.server_version or "0")
                    if self._failure is not None:
                        _log.info("%s is there again", self._where)
                    self._failure, self._final = None, False
                    self._change(connection)
        except Exception as error:  # noqa: BLE001 - others' code, in a task whose end would be everybody's
            self._fail(error)
            return False
        self._lose()
        return True

    def _lose(self) -> None:
        if self._failure is None:
            self._failure = RedisDownError(f"{self._where} was lost")
        _log.warning("%s", self._failure)
        self._change(None)

    def _fail(self, error: Exception) -> None:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        before, self._final = self._failure, _is_final(error)
        self._failure = RedisDownError(f"{self._where} cannot be used: {_reason(error)}")
        if str(before) != str(self._failure):
            _log.warning("%s", self._failure)
        self._change(None)

    def _change(self, connection: BaseConnection | None) -> None:
        self._connection = connection
        self._changed.set()
        self._changed = trio.Event()


@contextmanager
def _closing(connection: BaseConnection) -> Iterator[None]:
    """Close at the end what coredis leaves open of a connection that could not be made."""
    try:
        yield
    finally:
        for part in vars(connection).values():
            if isinstance(part, (MemoryObjectReceiveStream, MemoryObjectSendStream)):
                part.close()


class _UnfitError(Exception):
    """What answers is not what can be used."""


def _check_version(version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise _UnfitError(
            f"it is of version {version}, and {_OLDEST[0]}.{_OLDEST[1]} is the oldest that will do"
        )


def _make(url: str, timeout: float) -> BaseConnection:
    pool = ConnectionPool.from_url(
        url, decode_components=True, connect_timeout=timeout, stream_timeout=timeout
    )
    return pool.connection_class(pool.location, **pool.connection_kwargs)  # type: ignore[arg-type]


def _send(connection: BaseConnection, command: bytes, arguments: Sequence[Value]) -> Awaitable[Any]:
    """Send a command; what it returns is to be awaited for the answer. No schedule point."""
    return connection.create_request(command, *arguments, decode=False, timeout=math.inf)


def _encoded(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _is_final(error: Exception) -> bool:
    """Return whether trying again will not help whoever waits now."""
    return isinstance(error, (_UnfitError, ResponseError, ValueError))


def _reason(error: BaseException) -> str:
    """Say in one line why something failed."""
    if isinstance(error, AuthenticationFailureError):
        return "the name or the password is wrong"
    if isinstance(error, AuthenticationRequiredError):
        return "it asks for a password, and the URL has none: redis://:PASSWORD@host"
    if isinstance(error, UnknownCommandError):
        return "it is older than version 6.2"
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).partition("\n")[0] or type(error).__name__
