"""A login as it is kept: at which issuer, as which client, for which server, and what came of it."""

import attrs
import msgspec

from mcpbus.client.errors import redact_url
from mcpbus.client.oauth.discovery import AuthorizationServer
from mcpbus.client.oauth.errors import LoginError
from mcpbus.client.oauth.http import NetworkZone
from mcpbus.client.oauth.storage import TokenStorage, by_command

GIVEN, DOCUMENT, REGISTERED = "given", "document", "registered"
"""How an issuer came to know a client: by its user, by the URL of its metadata, or because it has registered."""


@attrs.frozen
class KnownClient:
    """A client, as one issuer knows it.

    Attributes:
        id: Its name there.
        secret: By what it proves that, if it can.
        method: How it says who it is at the token endpoint.
        how: How the issuer came to know it.
        redirect: Where people are sent back to, if it has registered with that.
        scopes: With which scopes it has registered.
        expires: When its secret does, in seconds since the epoch.
    """

    id: str
    secret: str | None = attrs.field(default=None, repr=False)
    method: str = "none"
    how: str = GIVEN
    redirect: str = ""
    scopes: tuple[str, ...] = ()
    expires: float | None = None


@attrs.frozen
class Tokens:
    """What an issuer has issued.

    Attributes:
        access: What the server is shown.
        expires: Until when it is good, in seconds since the epoch, if the issuer says so.
        renews: When another one should be had instead.
        refresh: For what the issuer issues another one.
        granted: What it allows, if the issuer says so.
    """

    access: str = attrs.field(repr=False)
    expires: float | None = None
    renews: float | None = None
    refresh: str | None = attrs.field(default=None, repr=False)
    granted: tuple[str, ...] | None = None

    def is_good(self, now: float) -> bool:
        """Whether it need not be renewed yet."""
        return self.renews is None or now < self.renews


@attrs.frozen
class Login:
    """See the module.

    Attributes:
        resource: For what the tokens are, as the issuer was told.
        issuer: Who has issued them, as it was then.
        client: To whom.
        asked: What was asked for.
        tokens: None once they are no good.
        wanted: What the server wants besides, and nobody was there to log in for: it is asked for the next time.
        reach: How near the server was.
        page_unanswered: Whether the last page for more scopes led nowhere. The issuer may have forgotten the client then, and shows an
            error instead of a login, so the next page is for a client that registers again.
    """

    resource: str
    issuer: AuthorizationServer
    client: KnownClient
    asked: tuple[str, ...] = ()
    tokens: Tokens | None = None
    wanted: tuple[str, ...] = ()
    reach: NetworkZone = NetworkZone.ANYWHERE
    page_unanswered: bool = False


def encode_login(login: Login) -> bytes:
    """Write a login, with its secrets, for a store."""
    return msgspec.json.format(msgspec.json.encode(login), indent=2)


def decode_login(stored: bytes, url: str, store: TokenStorage | None = None) -> Login:
    """Read a login that was stored.

    Args:
        stored: What was.
        url: The server's.
        store: Where.

    Raises:
        LoginError: It is none.
    """
    try:
        return msgspec.json.decode(stored, type=Login)
    except (msgspec.DecodeError, RecursionError):
        # What is wrong with it may quote it.
        server = redact_url(url)
        raise LoginError(
            f"what is stored of the login at {server} cannot be read: {by_command('logout', server, store)} removes it"
        ) from None
