"""How tokens are come by: by a person who logs in, or by a program for itself.

What may be said of how to log in, checked before anything is asked. Secrets are quoted in no message.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from mcpbus.client.errors import redact_url
from mcpbus.client.oauth.client_registration import ClientIdentity, authenticated
from mcpbus.client.oauth.discovery import AuthorizationServer, DiscoveryResult
from mcpbus.client.oauth.errors import LoginError, redact_secrets
from mcpbus.client.oauth.http import OAuthHttp
from mcpbus.client.oauth.login import KnownClient, Login, Tokens
from mcpbus.client.oauth.storage import TokenStorage
from mcpbus.client.oauth.token_requests import validate_tokens
from mcpbus.protocol.http.resource_metadata import read_address
from mcpbus.protocol.scopes import is_scope
from mcpbus.protocol.validators import check_text

_SECRET: Final = ("code", "code_verifier", "refresh_token", "client_assertion")
_FOR_PEOPLE: Final = frozenset({"error", "error_description"})


class AuthFlow(Protocol):
    """What is asked of `OAuth` and `ClientCredentials`, which are two."""

    @property
    def store(self) -> TokenStorage:
        """Where logins are kept."""

    @property
    def scopes(self) -> Sequence[str]:
        """What is asked for in any case."""

    @property
    def client_identity(self) -> ClientIdentity:
        """By what the client may be known."""

    @property
    def clock(self) -> Callable[[], float]:
        """Tells the time, in seconds since the epoch."""

    @property
    def login_timeout(self) -> float:
        """How long somebody may take who has to be there; 0 where nobody has to."""

    def without_person(self) -> "AuthFlow":
        """Return the same for where nobody is: only logins are used that are kept."""

    async def fetch_tokens(
        self, web: OAuthHttp, found: DiscoveryResult, scopes: Sequence[str], before: Login | None
    ) -> Login:
        """Log in.

        Args:
            web: Who asks the issuer.
            found: Where.
            scopes: What to ask for.
            before: The last login at that server.

        Raises:
            LoginError: It is not to be.
        """


def check_grant(owner: str, **grants: Any) -> None:
    """Refuse what is none, by the names of the options; it is not quoted, as it may be a secret.

    Raises:
        TypeError: The message says what to write.
    """
    for name, grant in grants.items():
        if isinstance(grant, type) or not hasattr(grant, "fetch_tokens"):
            kind = f"the class {grant.__name__}" if isinstance(grant, type) else f"a {type(grant).__name__}"
            raise TypeError(f"{owner}: {name} is an OAuth(...) or ClientCredentials(...), not {kind}")


async def ask_for_tokens(
    web: OAuthHttp,
    issuer: AuthorizationServer,
    client: KnownClient,
    form: dict[str, str],
    *,
    clock: Callable[[], float],
    before: Tokens | None = None,
) -> Tokens:
    """Ask an issuer for tokens; raises what `validate_tokens` does.

    Args:
        web: Who asks.
        issuer: Whom.
        client: As which client.
        form: For what.
        clock: Tells the time.
        before: What is renewed.
    """
    said, headers = authenticated(client, form)
    answer = await web.post_form(issuer.token_endpoint, said, headers)
    secrets = [client.secret, *(form.get(name) for name in _SECRET)]
    document: dict[str, Any] = {**(answer.document or {})}
    for name in _FOR_PEOPLE:
        if isinstance(document.get(name), str):
            document[name] = redact_secrets(document[name], *secrets)
    return validate_tokens(answer.status, document, issuer, clock(), before)


def may_be_shown(url: str) -> None:
    """Refuse to show a token where others could read it on its way (RFC 6750, section 5.3).

    Raises:
        LoginError: It is not https, and not on this machine.
    """
    try:
        read_address(redact_url(url), "the server")
    except ValueError as error:
        raise LoginError(f"no token is sent there: {error}") from None


_STORE: Final = ("load", "save", "lock")
_HOSTS: Final = {"127.0.0.1", "localhost", "::1"}
"""Where a browser finds what listens for it."""
_PORTS: Final = range(1, 2**16)


def listed_scopes(scopes: Any) -> tuple[str, ...]:
    """Return scopes that somebody has written down, each once.

    Raises:
        TypeError: They are no list of texts.
        ValueError: One cannot be a scope.
    """
    if isinstance(scopes, str) or not isinstance(scopes, Iterable):
        raise TypeError('scopes are a list: write scopes=["files:read"]')
    found = tuple(dict.fromkeys(scopes))
    for scope in found:
        if not isinstance(scope, str) or not is_scope(scope):
            raise ValueError(f"{scope!r} is no scope: write visible ASCII without blanks and quotation marks")
    return found


def check_client(owner: str, client_id: Any, client_secret: Any) -> None:
    """Refuse what no client can be known by.

    Raises:
        TypeError: One is no text.
        ValueError: One is empty, or there is a secret and nothing that it is of.
    """
    for name, value in (("client_id", client_id), ("client_secret", client_secret)):
        if value is not None:
            check_text(owner, **{name: value})
            if not value:
                raise ValueError(f"{owner}: {name} is empty; leave it out")
    if client_secret is not None and client_id is None:
        raise ValueError(f"{owner}: client_secret needs client_id, whose it is")


def check_document(owner: str, url: Any) -> None:
    """Refuse what is no URL of a client's metadata (specification, "Client ID Metadata Documents").

    Raises:
        TypeError: It is no text.
        ValueError: It cannot be one.
    """
    check_text(owner, client_metadata_url=url)
    parts = read_address(url, f"{owner}: client_metadata_url")
    if parts.scheme != "https" or parts.path in {"", "/"}:
        raise ValueError(
            f"{owner}: client_metadata_url is {url!r}: it is https and has a path, as https://example.com/client.json"
        )


def check_issuer_name(owner: str, issuer: Any) -> None:
    """Refuse what is no identifier of an issuer.

    Raises:
        TypeError: It is no text.
        ValueError: It cannot be one.
    """
    check_text(owner, issuer=issuer)
    read_address(issuer, f"{owner}: issuer")


def check_redirect(owner: str, redirect: Any) -> None:
    """Refuse where no browser can be sent back to on this machine.

    Raises:
        TypeError: It is neither a number nor a text.
        ValueError: It is no port, or no address of this machine.
    """
    if isinstance(redirect, bool) or not isinstance(redirect, int | str):
        raise TypeError(f"{owner}: redirect is a port, or an address as in http://127.0.0.1:8123/callback")
    if isinstance(redirect, int):
        if redirect not in _PORTS:
            raise ValueError(
                f"{owner}: redirect is {redirect}: ports go from {_PORTS.start} to {_PORTS.stop - 1}"
            )
        return
    parts = read_address(redirect, f"{owner}: redirect")
    if parts.scheme != "http" or parts.hostname not in _HOSTS or parts.query:
        raise ValueError(
            f"{owner}: redirect is {redirect!r}: it is an address of this machine, as http://127.0.0.1:8123/callback"
        )


def check_store(owner: str, store: Any) -> None:
    """Refuse what keeps no logins.

    Raises:
        TypeError: It has not what `TokenStorage` has.
    """
    if isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in _STORE):
        raise TypeError(
            f"{owner}: store is a FileTokenStorage(), a MemoryTokenStorage(), or another TokenStorage, not {store!r}"
        )
