"""Where logins are kept between requests, connections and programs, each by the URI of its server."""

import shlex
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import trio

from mcpbus.protocol.keywords import explained


class TokenStorage(Protocol):
    """Keeps logins, and lets one at a time of all who share it see to one of them.

    What is kept holds secrets: whoever can read it is logged in.
    """

    async def load(self, server: str) -> bytes | None:
        """Return what is kept of the login at a server; None if nothing is.

        Args:
            server: Its URI.
        """

    async def save(self, server: str, login: bytes | None) -> None:
        """Keep a login instead of the last one; None to forget it."""

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        """Wait until nobody else sees to the login at a server, and have nobody do so as long as the block lasts.

        Who logs in, or renews a token, does so in there: of two who did at once, one would get nothing, or lose what the other has.
        """


def by_command(verb: str, server: str, store: TokenStorage | None) -> str:
    """Return the command that logs in, or out, at a server with the logins of a store.

    Args:
        verb: ``login`` or ``logout``.
        server: What may be told of the server's URL.
        store: Keeps the logins.
    """
    account = getattr(store, "account", None)
    return f"mcpbus {verb} {server}" + ("" if account is None else f" --as {shlex.quote(account)}")


@explained
class MemoryTokenStorage:
    """Keeps logins as long as the program runs. One is for all connections that are given it, in one run of trio at a time."""

    def __init__(self) -> None:
        self._logins: dict[str, bytes] = {}
        self._turns: dict[str, trio.Lock] = {}

    async def load(self, server: str) -> bytes | None:
        """See `TokenStorage.load`."""
        await trio.lowlevel.checkpoint()
        return self._logins.get(server)

    async def save(self, server: str, login: bytes | None) -> None:
        """See `TokenStorage.save`."""
        if login is None:
            self._logins.pop(server, None)
        else:
            self._logins[server] = login
        await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def lock(self, server: str) -> AsyncIterator[None]:
        """See `TokenStorage.lock`."""
        async with self._turns.setdefault(server, trio.Lock()):
            yield

    def __repr__(self) -> str:
        return f"<MemoryTokenStorage of {len(self._logins)} logins>"
