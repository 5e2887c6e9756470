"""The login of a program for itself, without a person (extension io.modelcontextprotocol/oauth-client-credentials)."""

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from mcpbus.client.oauth.client_registration import ClientIdentity, check_issuer, find_client
from mcpbus.client.oauth.discovery import DiscoveryResult
from mcpbus.client.oauth.flow import (
    ask_for_tokens,
    check_client,
    check_issuer_name,
    check_store,
    listed_scopes,
)
from mcpbus.client.oauth.http import OAuthHttp
from mcpbus.client.oauth.login import KnownClient, Login
from mcpbus.client.oauth.storage import MemoryTokenStorage, TokenStorage
from mcpbus.client.oauth.token_requests import client_credentials_request
from mcpbus.protocol.keywords import explained

MakeAssertion: TypeAlias = Callable[[str], str]
"""Makes what a client proves with who it is: a signed JWT whose audience is the issuer that it is given (RFC 7523)."""

_BY_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@explained
@attrs.frozen(kw_only=True)
class ClientCredentials:
    """Logs a program in for itself: ``connect_http(url, auth=ClientCredentials(client_id="...", client_secret="...", issuer="..."))``.

    Attributes:
        client_id: The name by which the issuer knows it.
        client_secret: By what it proves that.
        make_assertion: Or what makes a signed JWT that does, for the issuer that it is given.
        issuer: The only issuer to log in at; name it, or whichever the server names at the first login is shown the secret.
        scopes: What to ask for, whatever the server says.
        store: Where logins are kept; by default in memory.
        clock: Tells the time, in seconds since the epoch.
    """

    client_id: str
    client_secret: str | None = attrs.field(default=None, repr=False)
    make_assertion: MakeAssertion | None = attrs.field(default=None, repr=False)
    issuer: str | None = None
    scopes: Sequence[str] = ()
    store: TokenStorage = attrs.field(factory=MemoryTokenStorage)
    clock: Callable[[], float] = attrs.field(default=time.time, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot be right.

        Raises:
            TypeError: Something is of another type; the message says what to write.
            ValueError: Something cannot be right; likewise.
        """
        owner = "ClientCredentials"
        check_client(owner, self.client_id, self.client_secret)
        # Not by a converter, of which one type checker makes a descriptor that is no `Grant`'s.
        object.__setattr__(self, "scopes", listed_scopes(self.scopes))
        check_store(owner, self.store)
        if self.issuer is not None:
            check_issuer_name(owner, self.issuer)
        if (self.client_secret is None) == (self.make_assertion is None):
            raise ValueError(f"{owner}: give client_secret, or make_assertion, and not both")

    @property
    def client_identity(self) -> ClientIdentity:
        """By what the client may be known."""
        return ClientIdentity(self.client_id, self.client_secret, issuer=self.issuer)

    @property
    def login_timeout(self) -> float:
        """That nobody has to be there."""
        return 0.0

    def without_person(self) -> "ClientCredentials":
        """Return the same: there never is anybody."""
        return self

    async def fetch_tokens(
        self, web: OAuthHttp, found: DiscoveryResult, scopes: Sequence[str], before: Login | None
    ) -> Login:
        """See `Grant.fetch_tokens`."""
        check_issuer(self.client_identity, found.issuer, before)
        client = find_client(self.client_identity, found.issuer, before) or KnownClient(self.client_id)
        form = client_credentials_request(found.resource, scopes)
        if self.make_assertion is not None:
            form["client_assertion_type"] = _BY_ASSERTION
            form["client_assertion"] = self.make_assertion(found.issuer.name)
        tokens = await ask_for_tokens(web, found.issuer, client, form, clock=self.clock)
        return Login(found.resource, found.issuer, client, tuple(scopes), attrs.evolve(tokens, refresh=None))
