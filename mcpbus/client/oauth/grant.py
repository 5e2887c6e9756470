"""How tokens are come by: by a person who logs in, or by a program for itself."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from mcpbus.client.errors import redact_url
from mcpbus.client.oauth.clients import ClientIdentity, authenticated
from mcpbus.client.oauth.discovery import DiscoveryResult
from mcpbus.client.oauth.errors import LoginError, redact_secrets
from mcpbus.client.oauth.login import KnownClient, Login, Tokens
from mcpbus.client.oauth.metadata import AuthorizationServer
from mcpbus.client.oauth.store import TokenStorage
from mcpbus.client.oauth.token_requests import validate_tokens
from mcpbus.client.oauth.web import OAuthHttp
from mcpbus.protocol.http.addresses import read_address

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
