"""What may be said of how to log in, checked before anything is asked. Secrets are quoted in no message."""

from collections.abc import Iterable
from typing import Any, Final

from mcpbus.protocol.http.addresses import read_address
from mcpbus.protocol.scopes import is_scope
from mcpbus.protocol.validators import check_text

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
