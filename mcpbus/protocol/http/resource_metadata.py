"""Where a server tells who issues tokens for it: one document, at each place where clients look for it (RFC 9728, section 3).

Addresses of resources and of issuers: which are acceptable, and where their metadata is.
"""

from typing import Final
from urllib.parse import SplitResult, urlsplit

from mcpbus.protocol.http import options as origin
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, answer, plain_path
from mcpbus.protocol.http.options import HttpOptions, is_loopback_host

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""What clients put between the host and the path of a server."""

_VERBS: Final = b"GET, HEAD, OPTIONS"
_ANYBODY: Final = (b"access-control-allow-origin", b"*")
_FIELDS: Final = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"public, max-age=300"),
    _ANYBODY,
)


class ResourceMetadata:
    """Answers whoever looks for the document, which is no secret.

    Args:
        document: The document.
        path: That of the server's canonical URI.
        options: How the endpoint is served.
    """

    def __init__(self, document: bytes, path: str, options: HttpOptions) -> None:
        self._paths = {plain_path(place) for place in ("", path, options.path, options.sse_path)}
        self._found = HttpResponse(200, [*_FIELDS, (b"content-length", b"%d" % len(document))], document)

    def is_place(self, head: RequestHead) -> bool:
        """Whether this is one of the places."""
        path = head.path
        if not path.startswith(WELL_KNOWN):
            return False
        suffix = path[len(WELL_KNOWN) :]
        # A mount stands before the path in the server's address, and so behind the well-known part.
        return suffix in self._paths or suffix.removeprefix(head.root) in self._paths

    def answer(self, head: RequestHead) -> HttpResponse:
        """Answer a request to one of the places."""
        if head.verb in {"GET", "HEAD"}:
            return self._found
        if head.verb == "OPTIONS":
            allowed = origin.preflight(head, _VERBS)
            return HttpResponse(204, [*allowed.headers, _ANYBODY])
        return answer(405, b"text/plain", b"GET or HEAD.\n", (b"allow", _VERBS), _ANYBODY)


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
