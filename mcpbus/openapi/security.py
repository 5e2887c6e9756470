"""Credentials of requests, as the security schemes of a document place them.

Source: OpenAPI 3.1.1, "Security Scheme Object" and "Security Requirement Object"; RFC 6750; RFC 7617.
"""

import inspect
import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import attrs

from mcpbus.openapi.document import ApiReferences, OpenApiError
from mcpbus.protocol.printable import quoted

Credential: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""The name of an environment variable, or a function that returns the secret: it is called for each request."""

_PLACES: Final = ("header", "query", "cookie")
_LONGEST: Final = 100


class CredentialError(Exception):
    """A secret cannot be had, or cannot be sent; the text does not contain it."""


@attrs.frozen
class SecretPlace:
    """The place of a secret in a request.

    Attributes:
        place: "header", "query" or "cookie".
        name: The name of the field, parameter or cookie.
        prefix: "Bearer ", "Basic ", or nothing.
    """

    place: str
    name: str
    prefix: str = ""

    def written(self, secret: str) -> str:
        """Return the value that a request has at this place.

        Raises:
            CredentialError: It has characters that no request has there.
        """
        if self.prefix == "Basic ":
            return self.prefix + b64encode(secret.encode()).decode()
        if self.place != "header":
            return quote(secret, safe="")
        if not secret.isascii() or not secret.isprintable():
            raise CredentialError("it holds characters that a header field cannot hold")
        return self.prefix + secret


@attrs.frozen
class ApiSecurity:
    """The credentials that there are, and the ways to use them.

    Attributes:
        places: The place of each scheme for which there is a credential.
        credentials: The credentials, by the same names.
        general: What all operations ask for that say nothing themselves.
    """

    places: Mapping[str, SecretPlace]
    credentials: Mapping[str, Credential]
    general: Any

    def schemes(self, own: Any) -> tuple[str, ...] | None:
        """Return the schemes to use for an operation; None if the credentials for all of its alternatives are missing.

        Args:
            own: The alternatives that the operation names; None if it names none.
        """
        alternatives = self.general if own is None else own
        if not isinstance(alternatives, list) or not alternatives:
            return ()
        usable = [
            tuple(each) for each in alternatives if isinstance(each, dict) and set(each) <= set(self.places)
        ]
        # One with credentials goes before one without: `{}` only makes them optional.
        return max(usable, key=len, default=None)


def read_security(references: ApiReferences, credentials: Mapping[str, Credential]) -> ApiSecurity:
    """Return the credentials, each with its place.

    Raises:
        OpenApiError: There is no such scheme, or it is of a kind that has no place for a secret.
        TypeError: A credential is neither a text nor a function.
    """
    schemes = references.root.get("components", "securitySchemes")
    known = {} if schemes is None else schemes.mapping()
    places = {}
    for name, credential in credentials.items():
        if not isinstance(credential, str) and not callable(credential):
            raise TypeError(
                f"credentials[{name!r}] is the name of an environment variable, or a function that returns the secret"
            )
        scheme = None if schemes is None else schemes.get(name)
        if scheme is None:
            shown = ", ".join(quoted(each, _LONGEST) for each in known) or "none"
            raise OpenApiError(
                f"credentials: the document has no security scheme {name!r}; there are {shown}"
            )
        places[name] = _place(name, references.follow(scheme).mapping())
    return ApiSecurity(places, dict(credentials), references.root.mapping().get("security"))


def _place(name: str, scheme: Mapping[str, Any]) -> SecretPlace:
    match scheme.get("type"):
        case "apiKey" if scheme.get("in") in _PLACES and isinstance(scheme.get("name"), str):
            return SecretPlace(scheme["in"], scheme["name"])
        case "http" if str(scheme.get("scheme")).lower() in {"bearer", "basic"}:
            return SecretPlace("header", "Authorization", f"{scheme['scheme'].capitalize()} ")
        case "oauth2" | "openIdConnect":
            return SecretPlace("header", "Authorization", "Bearer ")
        case kind:
            raise OpenApiError(
                f"credentials: the security scheme {name!r} is of the type {quoted(kind, 50)}, for which there is no credential: give a client= that has it"
            )


def check_environment(credentials: Mapping[str, Credential]) -> None:
    """Refuse environment variables that are not set.

    Raises:
        CredentialError: One is not, or is empty.
    """
    for name, credential in credentials.items():
        if isinstance(credential, str) and not os.environ.get(credential):
            raise CredentialError(
                f"the environment variable {credential!r}, the credential for {name!r}, is not set"
            )


async def secret_of(name: str, credential: Credential) -> str:
    """Return a secret.

    Raises:
        CredentialError: The environment variable is not set, or the function returned something else.
    """
    if isinstance(credential, str):
        check_environment({name: credential})
        return os.environ[credential]
    secret: object = credential()
    if inspect.isawaitable(secret):
        secret = await secret
    if not isinstance(secret, str):
        raise CredentialError(f"the credential for {name!r} returned no text, but {type(secret).__name__}")
    return secret
