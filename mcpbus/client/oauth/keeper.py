"""The token of one connection: found, renewed, or had by a login, once for all who wait for it.

Who sees to it is a task of the connection's own, which goes on when whoever needed it first has left: the person is about to log in. Of
the connections and programs that share a store, one at a time does so, and looks first whether another one has meanwhile.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import trio

from mcpbus.client.errors import redact_url
from mcpbus.client.oauth.errors import LoginError, LoginNeededError, copy_error, sanitize
from mcpbus.client.oauth.grant import AuthFlow
from mcpbus.client.oauth.nearness import NetworkZone
from mcpbus.client.oauth.refusal import TokenChallenge
from mcpbus.client.oauth.token_source import TokenOrigin, TokenSource
from mcpbus.protocol.sole_cause import sole_cause


@attrs.define(eq=False)
class _Work:
    """Somebody sees to the token."""

    may_ask: bool
    ended: trio.Event = attrs.Factory(trio.Event)
    way: TokenOrigin | None = None
    failure: LoginError | None = None


class TokenManager:
    """See the module.

    Args:
        url: The server's.
        grant: How tokens are come by.
        nursery: For whoever sees to it.
    """

    def __init__(self, url: str, grant: AuthFlow, nursery: trio.Nursery) -> None:
        self._server = redact_url(url)
        self._store = grant.store
        self._source = TokenSource(url, grant)
        self._nursery = nursery
        self._looked = False
        self._work: _Work | None = None
        self._had = trio.Event()

    @property
    def issuer(self) -> str:
        """Who has issued the token, for people."""
        login = self._source.login
        return "nobody" if login is None else sanitize(login.issuer.name)

    async def token(self) -> str | None:
        """Return the token to send now, renewed if it is about to expire; None if there is none.

        Raises:
            LoginError: What is stored cannot be read.
        """
        if not self._looked:
            await self._source.load()
            self._looked = True
        if self._source.is_to_be_renewed:
            work = self._work or self._begin(self._source.renew_early, may_ask=False)
            await work.ended.wait()
        tokens = self._source.tokens
        return None if tokens is None else tokens.access

    async def renew(
        self, refusal: TokenChallenge, reach: NetworkZone, *, may_ask: bool, logs_in: bool = False
    ) -> TokenOrigin:
        """Have another token than the one that was refused.

        Args:
            refusal: How the server refused it.
            reach: How near the server is.
            may_ask: Whether a person may be asked to log in for it. If not, that is left to who comes with something for which one may
                be, and waited for.
            logs_in: Whether to log in without an attempt to renew it, which has been in vain.

        Returns:
            How that came about.

        Raises:
            LoginError: There is none to be had.
        """
        while True:
            work, mine = self._work, False
            if work is None:
                see_to = partial(self._source.replace, refusal, reach, may_ask=may_ask, logs_in=logs_in)
                work, mine = self._begin(see_to, may_ask), True
            await work.ended.wait()
            if isinstance(work.failure, LoginNeededError) and not may_ask:
                await self._had.wait()
            elif work.failure is not None and (mine or work.may_ask >= may_ask):
                raise copy_error(work.failure)
            tokens = self._source.tokens
            other = tokens is not None and tokens.access != refusal.token
            if work.way is not None and (mine or other):  # an issuer may issue the same once more
                return work.way

    def _begin(self, see_to: Callable[[], Awaitable[TokenOrigin]], may_ask: bool) -> _Work:
        work = self._work = _Work(may_ask)
        self._nursery.start_soon(self._run, work, see_to)
        return work

    async def _run(self, work: _Work, see_to: Callable[[], Awaitable[TokenOrigin]]) -> None:
        try:
            async with self._store.lock(self._source.server):
                work.way = await see_to()
        except Exception as error:  # noqa: BLE001 - a store of somebody else's may raise anything, and whoever waits is told
            cause = sole_cause(error)
            if isinstance(cause, LoginError):
                work.failure = cause
            else:
                work.failure = LoginError(f"the login at {self._server} failed: {type(cause).__name__}")
                work.failure.__cause__ = cause
        finally:
            if work.way is None and work.failure is None:
                work.failure = LoginError(f"the login at {self._server} was cut off")
            self._work = None
            work.ended.set()
            if work.way is not None:
                self._had.set()
                self._had = trio.Event()
