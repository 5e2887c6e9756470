"""What can go wrong where a server asks for a login. No message holds a token, a code or a secret."""

import copy
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from mcpbus.client.errors import ClientError
from mcpbus.protocol.printable import printable

_MOST_SHOWN: Final = 300
_SHORTEST_SECRET: Final = 4

_Error = TypeVar("_Error", bound=Exception)


class LoginError(ClientError):
    """The server asks for a login, and there is none. The message says what went wrong, where, and what to do.

    Attributes:
        person_asked: Whether somebody was shown a page for it.
    """

    person_asked = False


class MetadataError(LoginError):
    """What a server or an issuer says of itself cannot be used: it is missing, or not to be believed."""


class IssuerUnavailableError(LoginError):
    """The issuer, or the server where it tells of it, cannot be asked now; what is stored is kept."""


class LoginNeededError(LoginError):
    """Somebody has to do something that the program cannot: log in, or say as which client."""


class LoginRefusedError(LoginError):
    """The issuer has said no, or the person in front of it has.

    Args:
        message: What to tell.
        code: The error code of OAuth, such as ``access_denied``.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class InsufficientScopeError(LoginError):
    """The token that there is does not allow what was asked for, and no other one can be had.

    Args:
        message: What to tell.
        scopes: What the server wants it to allow.
    """

    def __init__(self, message: str, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.scopes = scopes


def sanitize(text: object) -> str:
    """Return what somebody else has written, as it may be shown: without what steers a terminal, and not for ever."""
    return printable(text, lines=False, longest=_MOST_SHOWN)


def said_why(answer: Mapping[str, Any]) -> str:
    """Return what an issuer that refuses says to people, as the end of a sentence (RFC 6749, sections 4.1.2.1 and 5.2); nothing if it says nothing."""
    why = answer.get("error_description")
    return f": {sanitize(why)}" if why else ""


def redact_secrets(text: str, *secrets: str | None) -> str:
    """Return what somebody else has written without secrets that it was sent, and may quote; what is short can be no secret."""
    for secret in secrets:
        if secret is not None and len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "...")
    return text


def copy_error(error: _Error) -> _Error:
    """Return an error as somebody else gets it who has waited for the same: what is raised tells of one way only."""
    other = copy.copy(error)
    other.__cause__ = error.__cause__
    return other
