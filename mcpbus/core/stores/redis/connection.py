"""A connection to Redis or Valkey: one, on which all commands are under way at once, and which is made anew when it is lost.

The address of Redis or Valkey, which is looked at where it is written.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio

from mcpbus.core.stores.protocol import Promise
from mcpbus.core.stores.redis.commands import BaseConnection, NoScriptError, Script, Value
from mcpbus.core.stores.redis.reconnect import ReconnectingConnection, send
from mcpbus.core.stores.redis.scripts import PromisedScripts
from mcpbus.protocol.validators import check_text

_SCHEMES: Final = ("redis", "rediss", "unix")


def check_redis_url(url: str) -> None:
    """Refuse what is no address of Redis.

    Raises:
        TypeError: It is no text.
        ValueError: It is none; the message says what to write, and not the address, which may hold a password.
    """
    check_text("Redis", url=url)
    scheme, mark, place = url.partition("://")
    if not mark or not place or scheme not in _SCHEMES:
        begins = f", and not {scheme}://" if mark and scheme not in _SCHEMES else ""
        raise ValueError(
            f"the URL of Redis is redis://HOST:PORT, rediss://HOST:PORT or unix:///path/to/socket{begins}"
        )


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
        self._timeout = timeout
        self._promised = PromisedScripts(timeout)
        self._kept = ReconnectingConnection(url, timeout, self._promised.send_again)

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
        return await self._use(within, lambda connection: send(connection, _encoded(name), arguments))

    async def run(
        self,
        script: Script,
        keys: Sequence[Value] = (),
        arguments: Sequence[Value] = (),
        *,
        within: float | None = None,
    ) -> Any:
        """Run a script, as `call`, once those have ended that `run_soon` was asked for before."""

        async def run(connection: BaseConnection) -> Any:
            await self._promised.wait_ended()
            rest = [len(keys), *keys, *arguments]
            try:
                return await send(connection, b"EVALSHA", [script.digest, *rest])
            except NoScriptError:
                return await send(connection, b"EVAL", [script.text, *rest])

        return await self._use(within, run)

    def run_soon(
        self, script: Script, keys: Sequence[Value] = (), arguments: Sequence[Value] = ()
    ) -> Promise:
        """Run a script, without a task that waits for it. Several may be run in any order. One that whoever asked has given up is not sent again."""
        return self._promised.ask(self._kept, script, [len(keys), *keys, *arguments])

    def close(self) -> None:
        """Close it. It cannot be used any more."""
        self._kept.close()

    async def _use(self, within: float | None, ask: Callable[[BaseConnection], Awaitable[Any]]) -> Any:
        """Use a connection, and the next ones where it is lost meanwhile."""
        seconds = self._timeout if within is None else within
        connection = None
        with trio.move_on_after(seconds):
            while True:
                connection = await self._kept.wait()
                began = trio.current_time()
                try:
                    return await ask(connection)
                except trio.Cancelled:
                    if trio.current_time() - began >= seconds / 2:
                        connection.invalidate()  # the network may be dead, and say nothing
                    raise
                except Exception as error:  # noqa: BLE001 - whatever ended the connection
                    self._kept.judge(connection, error)
                connection = None
        if connection is not None:
            raise self._kept.silent(seconds)
        raise self._kept.out_of_reach(seconds)


def _encoded(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
