"""To log in before anything is asked of a server, and to log out: what `mcpbus login` and `mcpbus logout` do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import attrs
import trio

from mcpbus.client.errors import ClientError, redact_url
from mcpbus.client.http import connect_http, read_url
from mcpbus.client.oauth.authorization_code import OAuth
from mcpbus.client.oauth.client_registration import authenticated
from mcpbus.client.oauth.discovery import find_resource, server_uri
from mcpbus.client.oauth.errors import LoginError
from mcpbus.client.oauth.flow import check_grant
from mcpbus.client.oauth.http import OAuthHttpClient, reach_of, succeeded
from mcpbus.client.oauth.login import Login, decode_login, encode_login
from mcpbus.client.oauth.refusal import TokenChallenge
from mcpbus.client.oauth.storage import TokenStorage
from mcpbus.client.oauth.token_manager import TokenManager
from mcpbus.client.oauth.token_requests import revocation_request
from mcpbus.protocol.errors import ProtocolError


async def log_in(url: str, auth: OAuth) -> str:
    """Log in to a server, whether or not somebody is logged in there; all that share the store of `auth` are, then.

    Args:
        url: The server's.
        auth: How.

    Returns:
        The issuer.

    Raises:
        LoginError: It asks for no login, or there is none to be had.
        ClientError: It does not answer.
    """
    check_grant("log_in()", auth=auth)
    url, account = read_url(url)
    if account is not None:
        raise LoginError(
            f"{redact_url(url)} is sent the name and the password in its URL instead of a login: log in without them"
        )
    store = _Anew(auth.store)
    anew = attrs.evolve(auth, store=store)
    try:
        async with connect_http(url, auth=anew):
            pass
    except (ClientError, ProtocolError):
        if store.login is None:
            raise
        # What else is wrong with the server shows when it is used.
    if store.login is None:
        await _log_in_unasked(url, anew)
    assert store.login is not None  # noqa: S101 - or an error was raised
    return store.login.issuer.name


async def _log_in_unasked(url: str, auth: OAuth) -> None:
    """Log in to a server that lets everybody begin, and asks for tokens later, if it says who issues them."""
    reach = reach_of(url, None)
    if await find_resource(OAuthHttpClient(reach, [urlsplit(url).hostname or ""]), url, None) is None:
        raise LoginError(f"{redact_url(url)} asks for no login")
    failure: LoginError | None = None
    async with trio.open_nursery() as nursery:
        try:
            await TokenManager(url, auth, nursery).renew(
                TokenChallenge(None, too_little=False), reach, may_ask=True
            )
        except LoginError as error:  # raised again below: a nursery would put it into a group
            failure = error
    if failure is not None:
        raise failure


class _Anew:
    """A store in which no token is found, until there is a new one; all else of the last login is.

    Args:
        store: Where it is kept.

    Attributes:
        account: The name of the logins that it keeps, if they have one.
        login: What was kept since.
    """

    def __init__(self, store: TokenStorage) -> None:
        self._store = store
        self.account = getattr(store, "account", None)
        self.login: Login | None = None

    async def load(self, server: str) -> bytes | None:
        stored = await self._store.load(server)
        if stored is None or self.login is not None:
            return stored
        try:
            return encode_login(attrs.evolve(decode_login(stored, server), tokens=None))
        except LoginError:
            return None  # which is about to be replaced

    async def save(self, server: str, login: bytes | None) -> None:
        if login is not None:
            self.login = decode_login(login, server)
        await self._store.save(server, login)

    @asynccontextmanager
    async def lock(self, server: str) -> AsyncIterator[None]:  # noqa: ARG002 - so it is asked for
        # Whoever has it may wait for a person who has not seen the page, and looks here every second.
        yield


@attrs.frozen
class LoggedOut:
    """What became of a login.

    Attributes:
        issuer: Who had issued the tokens; None if there was no login.
        revoked: Whether it has taken the login back; a token that says itself what it allows may be good until it expires.
    """

    issuer: str | None = None
    revoked: bool = False


async def log_out(url: str, store: TokenStorage) -> LoggedOut:
    """Forget the login at a server, and have its issuer take the tokens back, if it does that (RFC 7009).

    Args:
        url: The server's.
        store: Where the login is kept.

    Returns:
        What became of it. It is forgotten in any case.
    """
    url, _ = read_url(url)
    server = server_uri(url)
    async with store.lock(server):
        stored = await store.load(server)
        if stored is None:
            return LoggedOut()
        try:
            login = decode_login(stored, url)
        except LoginError:
            await store.save(server, None)
            return LoggedOut("nobody knows whom")
        try:
            return LoggedOut(login.issuer.name, await _revoke(url, login))
        finally:
            with trio.CancelScope(shield=True):
                await store.save(server, None)


async def _revoke(url: str, login: Login) -> bool:
    endpoint = login.issuer.revocation_endpoint
    forms = revocation_request(login)
    if endpoint is None or not forms:
        return False
    web = OAuthHttpClient(login.reach, [urlsplit(url).hostname or ""])
    taken_back = []
    for form in forms:
        said, headers = authenticated(login.client, form)
        try:
            answer = await web.post_form(endpoint, said, headers)
        except LoginError:
            break
        taken_back.append(succeeded(answer.status))
    # The first is that with which more could be had. One that says itself what it allows, as JWTs do, many issuers cannot take back.
    return taken_back[:1] == [True]
