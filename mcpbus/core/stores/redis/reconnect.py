"""How a connection to Redis or Valkey is kept: it is made when it is wanted, and made anew when it is lost."""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Final

import trio

from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.core.stores.redis.commands import (
    AuthenticationFailureError,
    AuthenticationRequiredError,
    BaseConnection,
    BusyLoadingError,
    ConnectionPool,
    MemoryObjectReceiveStream,
    MemoryObjectSendStream,
    NoScriptError,
    ReadOnlyError,
    RedisDownError,
    RedisRefusalError,
    ResponseError,
    UnknownCommandError,
    Value,
)

_log = logging.getLogger("mcpbus")

_OURS: Final = ContextVar("mcpbus keeps a connection to Redis", default=False)


def _is_not_ours(_record: logging.LogRecord) -> bool:
    return not _OURS.get()


# It writes the traceback of each attempt to connect that fails, and raises the same: here that is told, and not each time.
logging.getLogger("coredis").addFilter(_is_not_ours)

_UNFIT: Final = (BusyLoadingError, ReadOnlyError)
"""What is said by one that takes connections, and does nothing yet or any more."""
_OLDEST: Final = (6, 2)
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two attempts to connect: each pause is twice the last one."""


class ReconnectingConnection:
    """The connection that there is now. One is made when somebody waits for it, and from then on whenever it was lost, until `close`.

    Args:
        url: As for `RedisConnection`.
        timeout: Seconds that it may take to make one.
        renewed: Called with each before anybody else has it, to say what is to be said first.

    Attributes:
        where: Which Redis it is, without a password, for whoever reads of it.
        failure: Why there is none, if that is known.
    """

    def __init__(
        self, url: str, timeout: float, renewed: Callable[[BaseConnection], Awaitable[None]]
    ) -> None:
        scheme, _, place = url.partition("://")
        self.where = f"Redis at {scheme}://{place.rpartition('@')[2].partition('?')[0]}"
        self.failure: RedisDownError | None = None
        self._url = url
        self._timeout = timeout
        self._renewed = renewed
        self._connection: BaseConnection | None = None
        self._final = False
        self._unfit = False
        self._changed = trio.Event()
        self._running: trio.CancelScope | None = None
        self._closed = False
        self._complaints = RateLimitedLogger(_log)
        self._relieved = RateLimitedLogger(_log, logging.INFO)

    @property
    def usable(self) -> BaseConnection | None:
        """The connection, if it can be used now."""
        connection = self._connection
        return connection if connection is not None and connection.usable else None

    async def wait(self) -> BaseConnection:
        """Return the connection; wait for one if there is none.

        Raises:
            RedisDownError: There will be none soon.
        """
        await trio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise RedisDownError("the connection to Redis is closed")
            if self._running is None:
                self._running = trio.CancelScope()
                self.failure, self._final = None, False
                trio.lowlevel.spawn_system_task(
                    self._keep, self._running, name="a connection to Redis", context=Context()
                )
            connection = self.usable
            if connection is not None:
                return connection
            if self._final and self.failure is not None:
                raise self.failure
            await self._changed.wait()

    def close(self) -> None:
        """Close it. There is none any more."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()

    def judge(self, connection: BaseConnection, error: Exception) -> None:
        """Take note that a command failed which may be sent again on the next connection, as this one is done with.

        Raises:
            RedisRefusalError: It is not to be: that is the answer.
        """
        if is_answer(error):
            raise RedisRefusalError(f"{self.where} answered with an error: {error}") from None
        if isinstance(error, _UNFIT):
            self._unfit = True
            self.failure = RedisDownError(f"{self.where} cannot be used now: {error}")
        connection.invalidate()

    def silent(self, seconds: float) -> RedisDownError:
        """Return what is said where nothing was answered for so many seconds."""
        return RedisDownError(f"{self.where} did not answer within {seconds:g} s")

    def out_of_reach(self, seconds: float) -> RedisDownError:
        """Return what is said where there was no connection for so many seconds."""
        return self.failure or RedisDownError(f"{self.where} could not be reached within {seconds:g} s")

    # -- the task ----------------------------------------------------------------------------------

    async def _keep(self, running: trio.CancelScope) -> None:
        """Connect, and do so again when the connection is lost."""
        _OURS.set(True)
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
                    if self._unfit:
                        await self._check_fit(connection)
                    if self.failure is not None:
                        self._relieved.warn("%s is there again", self.where)
                    self.failure, self._final = None, False
                    await self._renewed(connection)
                    self._change(connection)
        except Exception as error:  # noqa: BLE001 - others' code, in a task whose end would be everybody's
            self._fail(error)
            return False
        self._lose()
        return True

    async def _check_fit(self, connection: BaseConnection) -> None:
        """Ask who would not do what was asked before whether that is over: it takes connections meanwhile.

        Raises:
            RedisDownError: It is not.
        """
        with trio.move_on_after(self._timeout):
            told = await send(connection, b"HELLO", [])
            try:
                await send(connection, b"PING", [])
            except BusyLoadingError:
                raise RedisDownError("it is still loading what it has") from None
            if told.get(b"role") != b"master":
                raise RedisDownError("it is a replica, which takes no writes")
            self._unfit = False
            return
        raise RedisDownError(f"it did not answer within {self._timeout:g} s")

    def _lose(self) -> None:
        if self.failure is None:
            self.failure = RedisDownError(f"{self.where} was lost")
        self._complaints.warn("%s", self.failure)
        self._change(None)

    def _fail(self, error: Exception) -> None:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        before, self._final = self.failure, _is_final(error)
        reason = _reason(error)
        self.failure = RedisDownError(f"{self.where} cannot be used: {reason}")
        if str(before) != str(self.failure):
            self._complaints.warn("%s cannot be used: %s", self.where, reason)
        self._change(None)

    def _change(self, connection: BaseConnection | None) -> None:
        self._connection = connection
        self._changed.set()
        self._changed = trio.Event()


def send(connection: BaseConnection, command: bytes, arguments: Sequence[Value]) -> Any:
    """Send a command. No schedule point.

    Returns:
        What is to be awaited for the answer; it is `complete` when that has come, or will not.
    """
    return connection.create_request(command, *arguments, decode=False, timeout=math.inf)


def is_answer(error: Exception) -> bool:
    """Return whether an error is what Redis has to say to a command, and not what another one in its place might do, or this one later."""
    return isinstance(error, ResponseError) and not isinstance(error, (*_UNFIT, NoScriptError))


@contextmanager
def _closing(connection: BaseConnection) -> Iterator[None]:
    """Close at the end what coredis leaves open of a connection that could not be made."""
    try:
        yield
    finally:
        for part in vars(connection).values():
            if isinstance(part, (MemoryObjectReceiveStream, MemoryObjectSendStream)):
                part.close()


class _UnsupportedServerError(Exception):
    """What answers is not what can be used."""


def _check_version(version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise _UnsupportedServerError(
            f"it is of version {version}, and {_OLDEST[0]}.{_OLDEST[1]} is the oldest that will do"
        )


def _make(url: str, timeout: float) -> BaseConnection:
    pool = ConnectionPool.from_url(
        url, decode_components=True, connect_timeout=timeout, stream_timeout=timeout
    )
    return pool.connection_class(pool.location, **pool.connection_kwargs)  # type: ignore[arg-type]


def _is_final(error: Exception) -> bool:
    """Return whether trying again will not help whoever waits now."""
    return isinstance(error, (_UnsupportedServerError, ResponseError, ValueError))


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
