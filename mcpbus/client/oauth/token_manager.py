"""The token of one connection: found, renewed, or obtained by a login, once for all requests that wait for it.

A task of the connection obtains it. That task continues when the first request that needed the token has left, because the user may be
about to log in. Of the connections and programs that share a store, one at a time obtains a token. It looks first whether another one
has stored a token meanwhile.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import attrs
import trio

from mcpbus.client.errors import redact_url
from mcpbus.client.oauth.discovery import DiscoveryResult, discover, same_issuer, server_uri
from mcpbus.client.oauth.errors import (
    InsufficientScopeError,
    IssuerUnavailableError,
    LoginError,
    LoginNeededError,
    LoginRefusedError,
    copy_error,
    sanitize,
)
from mcpbus.client.oauth.flow import AuthFlow, ask_for_tokens, may_be_shown
from mcpbus.client.oauth.http import NetworkZone, OAuthHttpClient
from mcpbus.client.oauth.login import Login, Tokens, decode_login, encode_login
from mcpbus.client.oauth.refusal import TokenChallenge
from mcpbus.client.oauth.scopes import OFFLINE, choose_scopes
from mcpbus.client.oauth.token_requests import GONE, refresh_request
from mcpbus.protocol.errors import sole_cause

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 5.0
"""How long an issuer is left alone that could not be asked for a token before the last one has expired."""

_MOST_CHARACTERS: Final = 8_000
"""How long all scopes may be together, which a page is asked for in its address."""

_LOOK_SECONDS: Final = 1.0
"""How often to see whether somebody has logged in by hand, while a person is waited for."""


class TokenOrigin(Enum):
    """How there came to be another token."""

    FOUND = "somebody else has got it"
    RENEWED = "it was renewed"
    LOGGED_IN = "somebody has logged in"


class TokenSource:
    """Where the token for one server comes from: the store, a refresh, or a login. Its caller holds the lock of the store.

    Args:
        url: The server's.
        grant: How tokens are come by.

    Attributes:
        server: By what the login is known in the store.
        login: The login, as far as it is known.
    """

    def __init__(self, url: str, grant: AuthFlow) -> None:
        self.server = server_uri(url)
        self.login: Login | None = None
        self._url = url
        self._told = redact_url(url)
        self._grant = grant
        self._not_before = -math.inf
        # What was asked for, and not granted: nobody is asked for it again.
        self._in_vain: set[str] = set()

    @property
    def tokens(self) -> Tokens | None:
        """What the issuer has issued."""
        return None if self.login is None else self.login.tokens

    @property
    def is_to_be_renewed(self) -> bool:
        """Whether the token is about to expire, and may be renewed."""
        tokens = self.tokens
        return (
            tokens is not None
            and tokens.refresh is not None
            and not tokens.is_good(self._grant.clock())
            and trio.current_time() >= self._not_before
        )

    async def load(self) -> None:
        """See what is stored.

        Raises:
            LoginError: It cannot be read.
        """
        stored = await self._grant.store.load(self.server)
        login = None if stored is None else decode_login(stored, self._url, self._grant.store)
        own = self._grant.client_identity
        # That of another client, or at another issuer than is named, is none of ours.
        ours = login is not None and (
            own.id in {None, login.client.id}
            and (own.issuer is None or same_issuer(own.issuer, login.issuer.name))
        )
        self.login = login if ours else None

    async def renew_early(self) -> TokenOrigin:
        """Renew the token before the server refuses it; where that cannot be done yet, the last one is there.

        Raises:
            IssuerUnavailableError: It cannot be done yet.
        """
        await self.load()
        if self.login is None or not self.is_to_be_renewed:
            return TokenOrigin.FOUND
        try:
            if not await self._refresh(self._web(self.login.reach), self.login):
                self._not_before = trio.current_time() + _PAUSE_SECONDS
        except IssuerUnavailableError as error:
            self._not_before = trio.current_time() + _PAUSE_SECONDS
            _log.warning("the token for %s cannot be renewed yet: %s", self._told, error)
            raise
        return TokenOrigin.RENEWED

    async def replace(
        self, refusal: TokenChallenge, reach: NetworkZone, *, may_ask: bool, logs_in: bool
    ) -> TokenOrigin:
        """Have another token than the one that was refused; see `TokenManager.renew`."""
        await self.load()
        if self._has_another_than(refusal.token):
            return TokenOrigin.FOUND
        may_be_shown(self._url)
        web = self._web(reach)
        last = None if self.login is None else self.login.issuer.name
        found = await discover(web, self._url, refusal.place, [self._grant.client_identity.issuer, last])
        login = self._of(found, web.reach)
        if login is not None and not refusal.too_little:
            renewable = login.tokens is not None and login.tokens.refresh is not None
            if renewable and not logs_in and await self._refresh(web, login):
                return TokenOrigin.RENEWED
            login = attrs.evolve(login, tokens=None)
        scopes = self._choose(refusal, found, login)
        if self._grant.login_timeout and not may_ask:
            raise LoginNeededError(f"{self._told} asks for a login")
        return await self._log_in(web, found, refusal, scopes, login)

    def _of(self, found: DiscoveryResult, reach: NetworkZone) -> Login | None:
        """Return what is left of the last login where the server names another issuer, or itself otherwise, or neither."""
        login = self.login
        if login is None:
            return None
        if (login.issuer.name, login.resource) != (found.issuer.name, found.resource):
            return attrs.evolve(login, tokens=None, asked=(), wanted=())
        return attrs.evolve(login, issuer=found.issuer, reach=reach)

    def _choose(
        self, refusal: TokenChallenge, found: DiscoveryResult, login: Login | None
    ) -> tuple[str, ...]:
        """Return what to ask for.

        Raises:
            InsufficientScopeError: It was asked for, and there is no point in doing so again.
            LoginError: It is too much.
        """
        scopes = choose_scopes(
            refusal.scopes,
            found.listed,
            given=self._grant.scopes,
            before=() if login is None else (*login.asked, *login.wanted),
            offered=found.issuer.scopes if self._grant.login_timeout else (),
        )
        if len(" ".join(scopes)) > _MOST_CHARACTERS:
            raise LoginError(
                f"{self._told} asks for {len(scopes)} scopes, which are longer than the address of a page may be: "
                "name those that you need (scopes=)"
            )
        if not refusal.too_little or login is None:
            return scopes
        wanted, tokens = refusal.scopes, login.tokens
        granted = login.asked if tokens is None or tokens.granted is None else tokens.granted
        fault = _too_little(self._told, refusal)
        if wanted and set(wanted) <= set(granted):
            raise InsufficientScopeError(f"{fault}; its issuer says that it does", wanted)
        if self._in_vain & set(wanted) or not set(scopes) - {OFFLINE, *granted}:
            raise InsufficientScopeError(f"{fault}; its scopes were asked for, and not granted", wanted)
        return scopes

    async def _log_in(
        self,
        web: OAuthHttpClient,
        found: DiscoveryResult,
        refusal: TokenChallenge,
        scopes: Sequence[str],
        login: Login | None,
    ) -> TokenOrigin:
        try:
            new = await self._obtain(web, found, refusal, scopes, login)
        except LoginNeededError as error:
            if login is None or not refusal.too_little:
                raise
            await self.load()
            if self._has_another_than(refusal.token):
                return TokenOrigin.FOUND
            wanted = tuple(scope for scope in scopes if scope not in login.asked)
            unanswered = login.page_unanswered or error.person_asked
            await self._keep(attrs.evolve(login, wanted=wanted, page_unanswered=unanswered))
            needed = LoginNeededError(f"{_too_little(self._told, refusal)}; {error}")
            needed.person_asked = error.person_asked
            raise needed from None
        except BaseException as error:
            # A cancellation: the user may have given up before a page that shows an error.
            if not isinstance(error, Exception) and login is not None and refusal.too_little:
                await self._note_unanswered(login)
            raise
        if new is None:
            return TokenOrigin.FOUND
        granted = None if new.tokens is None else new.tokens.granted
        if granted is not None:
            self._in_vain |= set(refusal.scopes) - set(granted)
        await self._keep(attrs.evolve(new, reach=web.reach))
        _log.info("logged in to %s at %s", self._told, sanitize(new.issuer.name))
        return TokenOrigin.LOGGED_IN

    async def _obtain(
        self,
        web: OAuthHttpClient,
        found: DiscoveryResult,
        refusal: TokenChallenge,
        scopes: Sequence[str],
        login: Login | None,
    ) -> Login | None:
        """Log in; None if somebody has done so by hand meanwhile, for whom nobody's turn is waited for."""
        new: Login | None = None
        failure: LoginError | None = None

        async def look() -> None:
            while True:
                await trio.sleep(_LOOK_SECONDS)
                await self.load()
                if self._has_another_than(refusal.token):
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            if self._grant.login_timeout:
                nursery.start_soon(look)
            try:
                new = await self._grant.fetch_tokens(web, found, scopes, login)
            except LoginError as error:  # raised again below: a nursery would put it into a group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return new

    def _has_another_than(self, token: str | None) -> bool:
        """Whether there is a token that may be good where this one is not."""
        tokens = self.tokens
        return tokens is not None and tokens.access != token and tokens.is_good(self._grant.clock())

    async def _refresh(self, web: OAuthHttpClient, login: Login) -> bool:
        """Renew the token; tell whether there is another one now. Where the issuer says that it renews it no more, there is none.

        Nothing of it is cut off: the issuer may have spent what it is asked with.
        """
        last = login.tokens
        assert last is not None and last.refresh is not None  # noqa: S101, PT018 - asked before
        form = refresh_request(last.refresh, login.resource)
        tokens: Tokens | None = None
        with trio.CancelScope(shield=True):
            try:
                tokens = await ask_for_tokens(
                    web, login.issuer, login.client, form, clock=self._grant.clock, before=last
                )
            except LoginRefusedError as error:
                gone = error.code in GONE
                level = logging.INFO if gone else logging.WARNING
                _log.log(level, "the token for %s is not renewed: %s", self._told, error)
                if not gone:
                    return False
            await self.load()
            if self.tokens == last:  # else somebody has logged in by hand meanwhile, or out
                await self._keep(attrs.evolve(login, tokens=tokens))
        return self.tokens is not None

    async def _note_unanswered(self, login: Login) -> None:
        """Keep that a page led nowhere, unless the login is another one by now."""
        with trio.CancelScope(shield=True):
            await self.load()
            if self.tokens == login.tokens:
                await self._keep(attrs.evolve(login, page_unanswered=True))

    async def _keep(self, login: Login) -> None:
        self.login = login
        with trio.CancelScope(shield=True):
            await self._grant.store.save(self.server, encode_login(login))

    def _web(self, reach: NetworkZone) -> OAuthHttpClient:
        trusted = [urlsplit(self._url).hostname or ""]
        named = self._grant.client_identity.issuer
        if named is not None:
            trusted.append(urlsplit(named).hostname or "")
            reach = max(reach, NetworkZone.NETWORK)
        return OAuthHttpClient(reach, trusted)


def _too_little(server: str, refusal: TokenChallenge) -> str:
    named = f" ({' '.join(refusal.scopes)})" if refusal.scopes else ""
    why = "" if refusal.why in {"", "insufficient_scope"} else f": {refusal.why}"
    return f"the token for {server} does not allow that{sanitize(named)}{sanitize(why)}"


@attrs.define(eq=False)
class _Work:
    """Somebody sees to the token."""

    may_ask: bool
    ended: trio.Event = attrs.Factory(trio.Event)
    way: TokenOrigin | None = None
    failure: LoginError | None = None


class TokenManager:
    """The token of one connection, which a task obtains once for all requests that wait.

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
