"""Addresses of resources and of issuers: which are acceptable, and where their metadata is."""

from urllib.parse import SplitResult, urlsplit

from mcpbus.protocol.http.origin import is_loopback_host


def read_address(text: str, what: str) -> SplitResult:
    """Take an address apart.

    Args:
        text: The address.
        what: What it is, for people.

    Raises:
        ValueError: It is neither https nor on this machine, or has what no such address has.
    """
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{what} is {text!r}: {error}") from None
    if (
        parts.scheme not in {"https", "http"}
        or not host
        or not text.isascii()
        or not text.isprintable()
        or " " in text
    ):
        raise ValueError(f"{what} is {text!r}: write an address such as https://example.com/mcp")
    if parts.scheme == "http" and not is_loopback_host(host):
        raise ValueError(
            f"{what} is {text!r}: it must be https, or http on this machine, as http://127.0.0.1"
        )
    if parts.username is not None or parts.fragment or text.endswith("#"):
        raise ValueError(f"{what} is {text!r}: it has neither a user nor a fragment")
    return parts


def canonical(text: str) -> str:
    """Return a resource's URI as it is compared: scheme and host in lower case, no slash at its end.

    Raises:
        ValueError: It cannot be one.
    """
    parts = read_address(text, "resource")
    if parts.query:
        raise ValueError(f"resource is {text!r}: the URI of a server has no query")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def issuer_metadata(issuer: str) -> list[str]:
    """Where the metadata of an issuer may be, in the order in which to look (RFC 8414 sections 3.1 and 5, OpenID Discovery)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    found = [
        f"{origin}/.well-known/{name}{path}"
        for name in ("oauth-authorization-server", "openid-configuration")
    ]
    return [*found, f"{origin}{path}/.well-known/openid-configuration"] if path else found
