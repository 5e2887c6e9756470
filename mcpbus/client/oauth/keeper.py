"""The token of one connection: found, renewed, or had by a login, once for all who wait for it.

Who sees to it is a task of the connection's own, which goes on when whoever needed it first has left: the person is about to log in. Of
the connections and programs that share a store, one at a time does so, and looks first whether another one has meanwhile.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio

from mcpbus.client.oauth.discovery import discover
from mcpbus.client.oauth.errors import (
    InsufficientScopeError,
    IssuerUnavailableError,
    LoginError,
    LoginNeededError,
    LoginRefusedError,
    again,
    shown,
)
from mcpbus.client.oauth.grant import Grant, ask_for_tokens, may_be_shown
from mcpbus.client.oauth.login import Login, Tokens, decode_login, encode_login
from mcpbus.client.oauth.metadata import server_uri
from mcpbus.client.oauth.nearness import Nearness
from mcpbus.client.oauth.refusal import Refusal
from mcpbus.client.oauth.scopes import OFFLINE, choose_scopes
from mcpbus.client.oauth.token_requests import for_refresh
from mcpbus.client.oauth.web import HttpWeb

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 5.0
"""How long an issuer is left alone that could not be asked for a token before the last one has expired."""


class Way(Enum):
    """How there came to be another token."""

    FOUND = "somebody else has got it"
    RENEWED = "it was renewed"
    LOGGED_IN = "somebody has logged in"


@attrs.define(eq=False)
class _Work:
    """Somebody sees to the token."""

    may_ask: bool
    ended: trio.Event = attrs.Factory(trio.Event)
    way: Way | None = None
    failure: LoginError | None = None


class TokenKeeper:
    """See the module.

    Args:
        url: The server's.
        grant: How tokens are come by.
        nursery: For whoever sees to it.
    """

    def __init__(self, url: str, grant: Grant, nursery: trio.Nursery) -> None:
        self._url = url
        self._server = server_uri(url)
        self._grant = grant
        self._nursery = nursery
        self._login: Login | None = None
        self._looked = False
        self._work: _Work | None = None
        self._not_before = -math.inf
        # What was asked for, and not granted: nobody is asked for it again.
        self._in_vain: set[frozenset[str]] = set()

    @property
    def issuer(self) -> str:
        """Who has issued the token, for people."""
        return shown(self._login.issuer.name) if self._login is not None else "nobody"

    async def token(self) -> str | None:
        """Return the token to send now, renewed if it is about to expire; None if there is none.

        Raises:
            LoginError: What is stored cannot be read.
        """
        if not self._looked:
            self._login = await self._load()
            self._looked = True
        if self._is_to_be_renewed() and trio.current_time() >= self._not_before:
            work = self._work or self._begin(self._renew_early, may_ask=False)
            await work.ended.wait()
        tokens = self._tokens
        return None if tokens is None else tokens.access

    async def renew(self, refusal: Refusal, reach: Nearness, *, may_ask: bool, logs_in: bool = False) -> Way:
        """Have another token than the one that was refused.

        Args:
            refusal: How the server refused it.
            reach: How near the server is.
            may_ask: Whether a person may be asked to log in for it.
            logs_in: Whether to log in without an attempt to renew it, which has been in vain.

        Returns:
            How that came about.

        Raises:
            LoginError: There is none to be had.
        """
        while True:
            work, mine = self._work, False
            if work is None:
                see_to = partial(self._replace, refusal, reach, may_ask, logs_in)
                work, mine = self._begin(see_to, may_ask), True
            await work.ended.wait()
            if work.failure is not None and (mine or work.may_ask >= may_ask):
                raise again(work.failure)
            tokens = self._tokens
            other = tokens is not None and tokens.access != refusal.token
            if work.way is not None and (mine or other):  # an issuer may issue the same once more
                return work.way

    @property
    def _tokens(self) -> Tokens | None:
        return None if self._login is None else self._login.tokens

    def _is_to_be_renewed(self) -> bool:
        tokens = self._tokens
        return tokens is not None and tokens.refresh is not None and not tokens.is_good(self._grant.clock())

    def _begin(self, see_to: Callable[[], Awaitable[Way]], may_ask: bool) -> _Work:
        work = self._work = _Work(may_ask)
        self._nursery.start_soon(self._run, work, see_to)
        return work

    async def _run(self, work: _Work, see_to: Callable[[], Awaitable[Way]]) -> None:
        try:
            async with self._grant.store.turn(self._server):
                work.way = await see_to()
        except LoginError as failure:
            work.failure = failure
        except Exception as error:  # noqa: BLE001 - a store of somebody else's may raise anything, and whoever waits is told
            work.failure = LoginError(f"the login at {self._url} failed: {type(error).__name__}")
            work.failure.__cause__ = error
        finally:
            if work.way is None and work.failure is None:
                work.failure = LoginError(f"the login at {self._url} was cut off")
            self._work = None
            work.ended.set()

    # -- in our turn -----------------------------------------------------------------------------

    async def _renew_early(self) -> Way:
        """Renew a token before the server refuses it; that it cannot be done yet is no failure."""
        login = self._login = await self._load()
        if login is None or not self._is_to_be_renewed():
            return Way.FOUND
        try:
            return await self._refresh(self._web(Nearness(login.reach)), login)
        except IssuerUnavailableError as error:
            self._not_before = trio.current_time() + _PAUSE_SECONDS
            _log.warning("the token for %s cannot be renewed yet: %s", self._url, error)
            raise

    async def _replace(self, refusal: Refusal, reach: Nearness, may_ask: bool, logs_in: bool) -> Way:
        login = self._login = await self._load()
        tokens = self._tokens
        if tokens is not None and tokens.access != refusal.token and tokens.is_good(self._grant.clock()):
            return Way.FOUND
        may_be_shown(self._url)
        web = self._web(reach)
        last = None if login is None else login.issuer.name
        found = await discover(web, self._url, refusal.place, [self._grant.introduction.issuer, last])
        if login is not None and (last, login.resource) != (found.issuer.name, found.resource):
            login = attrs.evolve(login, tokens=None, asked=())
        elif login is not None and not refusal.too_little:
            login = attrs.evolve(login, issuer=found.issuer, reach=int(reach))
            if tokens is not None and tokens.refresh is not None and not logs_in:
                way = await self._refresh(web, login)
                if self._tokens is not None:
                    return way
            login = attrs.evolve(login, tokens=None)
        scopes = choose_scopes(
            refusal.scopes,
            found.listed,
            given=self._grant.scopes,
            before=() if login is None else login.asked,
            offered=found.issuer.scopes if self._grant.takes_person else (),
        )
        if refusal.too_little and login is not None:
            self._check_worth(refusal, login, scopes)
        if self._grant.takes_person and not may_ask:
            raise LoginNeededError(f"{self._url} asks for a login")
        new = await self._grant.obtain(web, found, scopes, login)
        granted = None if new.tokens is None else new.tokens.granted
        if granted is not None and not granted_all(refusal.scopes, granted):
            self._in_vain.add(frozenset(refusal.scopes))
        await self._keep(attrs.evolve(new, reach=int(reach)))
        _log.info("logged in to %s at %s", self._url, self.issuer)
        return Way.LOGGED_IN

    async def _refresh(self, web: HttpWeb, login: Login) -> Way:
        """Renew the token; where the issuer does that no more, there is none then."""
        assert login.tokens is not None and login.tokens.refresh is not None  # noqa: S101, PT018 - asked before
        form = for_refresh(login.tokens.refresh, login.resource)
        tokens: Tokens | None
        try:
            tokens = await ask_for_tokens(
                web, login.issuer, login.client, form, clock=self._grant.clock, before=login.tokens
            )
        except LoginRefusedError as error:
            _log.info("the token for %s is not renewed: %s", self._url, error)
            tokens = None
        await self._keep(attrs.evolve(login, tokens=tokens))
        return Way.RENEWED

    def _check_worth(self, refusal: Refusal, login: Login, scopes: tuple[str, ...]) -> None:
        """Refuse to ask for what was asked for.

        Raises:
            InsufficientScopeError: There is nothing more to ask for.
        """
        wanted, tokens = refusal.scopes, login.tokens
        named = f" ({' '.join(wanted)})" if wanted else ""
        why = f": {shown(refusal.why)}" if refusal.why else ""
        told = f"the token for {self._url} does not allow that{shown(named)}{why}"
        granted = login.asked if tokens is None or tokens.granted is None else tokens.granted
        if wanted and granted_all(wanted, granted):
            raise InsufficientScopeError(f"{told}; its issuer says that it does", wanted)
        if frozenset(wanted) in self._in_vain or not set(scopes) - {OFFLINE, *granted}:
            raise InsufficientScopeError(f"{told}; it was asked for, and not granted", wanted)

    # -- the store -------------------------------------------------------------------------------

    async def _load(self) -> Login | None:
        stored = await self._grant.store.load(self._server)
        login = None if stored is None else decode_login(stored, self._url)
        own = self._grant.introduction.id
        if login is not None and own is not None and login.client.id != own:
            return None  # it is another client's
        return login

    async def _keep(self, login: Login) -> None:
        self._login = login
        await self._grant.store.save(self._server, encode_login(login))

    def _web(self, reach: Nearness) -> HttpWeb:
        trusted = [urlsplit(self._url).hostname or ""]
        named = self._grant.introduction.issuer
        if named is not None:
            trusted.append(urlsplit(named).hostname or "")
            reach = max(reach, Nearness.NETWORK)
        return HttpWeb(reach, trusted)


def granted_all(wanted: tuple[str, ...], granted: tuple[str, ...]) -> bool:
    """Whether all of what is wanted is granted."""
    return set(wanted) <= set(granted)
