"""The URIs of resources, as authors write them."""

import re

from mcpbus.features.errors import RegistrationError

_LITERAL = re.compile(r"[^\x00-\x20\"<>\\^`{|}%]|%[0-9A-Fa-f]{2}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def is_template(uri: str) -> bool:
    """Whether `uri` has variables."""
    return "{" in uri


def check_uri(uri: str, owner: str) -> None:
    """Refuse a fixed URI that is not absolute.

    Raises:
        RegistrationError: `uri` has no scheme or holds a character that no URI has (RFC 3986).
    """
    fault = uri_fault(uri, "config://")
    if fault is not None:
        raise RegistrationError(f"{owner}: {fault}")


def uri_fault(uri: str, example: str) -> str | None:
    """Say why this is no absolute URI (RFC 3986); None if it is one. The `example` is of a scheme that would do."""
    if not _SCHEME.match(uri):
        return f"{uri!r} is not an absolute URI; begin with a scheme, such as {example}"
    if _LITERAL.sub("", uri):
        return f"{uri!r} holds characters that a URI cannot; percent-encode them"
    return None
