"""Where a server tells who issues tokens for it: one document, at each place where clients look for it (RFC 9728, section 3)."""

from typing import Final

from mcpbus.protocol.http import origin
from mcpbus.protocol.http.messages import HttpResponse, RequestHead, answer, plain_path
from mcpbus.protocol.http.origin import HttpOptions

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
