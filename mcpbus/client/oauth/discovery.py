"""How a client finds out where to log in (specification, "Authorization Server Discovery").

What a server says of who issues tokens for it (RFC 9728), and what an issuer says of itself (RFC 8414): where to look, and what to believe.

Nothing is believed that is for another server, or of another issuer. In two points servers are met halfway, since many of them are so and
nobody gains anything by it: a resource may be above the endpoint in the same origin, and an issuer may be written with a slash at its
end in one of the two documents. Both forms have the same metadata (RFC 8414, section 3.1).
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import attrs

from mcpbus.client.errors import redact_url
from mcpbus.client.oauth.errors import IssuerUnavailableError, MetadataError, sanitize
from mcpbus.client.oauth.http import OAuthHttp, OAuthResponse, succeeded
from mcpbus.protocol.http.resource_metadata import issuer_metadata, read_address

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_PORTS: Final = {"http": 80, "https": 443}
_MOST: Final = 1_000
"""Of a list in a document; what it has more is not looked at."""


@attrs.frozen
class ProtectedResource:
    """What a server says of itself.

    Attributes:
        identifier: For what tokens are to be issued.
        issuers: Who issues them.
        scopes: What they may have to allow, if it says so.
    """

    identifier: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] | None = None


@attrs.frozen
class AuthorizationServer:
    """What an issuer says of itself, as far as a client needs it.

    Attributes:
        name: Its identifier, to the letter.
        token_endpoint: Where tokens are had.
        authorization_endpoint: Where people log in.
        registration_endpoint: Where clients register.
        revocation_endpoint: Where tokens are taken back.
        scopes: What it can allow, as far as it says so.
        methods: How clients may say who they are; None if it does not say so.
        pkce: Whether it says that it checks who comes for the tokens (RFC 7636).
        says_itself: Whether it says who it is where it sends people back (RFC 9207).
        reads_documents: Whether a client may be known by the URL of its metadata.
    """

    name: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    methods: tuple[str, ...] | None = None
    pkce: bool = False
    says_itself: bool = False
    reads_documents: bool = False


def server_uri(url: str) -> str:
    """Return the canonical URI of a server, by which its login is known; without a query it is what its tokens are for."""
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{_origin(parts)}{parts.path.rstrip('/')}{query}"


def _origin(parts: SplitResult) -> str:
    scheme = parts.scheme.lower()
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in {None, _PORTS.get(scheme)} else f":{parts.port}"
    return f"{scheme}://{host}{port}"


def origin_of(url: str) -> str:
    """Return the origin of a URL: in revision 2025-03-26 it is the issuer of a server that names none."""
    return _origin(urlsplit(url))


def resource_places(url: str, named: str | None) -> list[str]:
    """Where the metadata of a server may be, in the order in which to look (specification, "Authorization Server Discovery").

    Args:
        url: The server's.
        named: Where its challenge says that it is.
    """
    parts = urlsplit(url)
    origin, path = _origin(parts), parts.path.rstrip("/")
    query = f"?{parts.query}" if parts.query else ""
    places = [named] if named else []
    if path or query:
        places.append(f"{origin}{_RESOURCE}{path}{query}")
    places.append(f"{origin}{_RESOURCE}")
    return list(dict.fromkeys(places))


def issuer_places(issuer: str) -> list[str]:
    """Where the metadata of an issuer may be, likewise.

    Raises:
        MetadataError: It is no address that may be asked.
    """
    parts = _address(issuer, "the issuer that the server names")
    if parts.query:
        raise MetadataError(f"the issuer that the server names is {sanitize(repr(issuer))}: it has a query")
    return issuer_metadata(issuer)


def validate_resource(document: Mapping[str, Any], place: str, url: str) -> ProtectedResource:
    """Read what a server says of itself.

    Args:
        document: The metadata.
        place: Where it was.
        url: The server's.

    Raises:
        MetadataError: It is another server's, or names no issuer.
    """
    identifier = _text(document, "resource")
    if identifier is None:
        raise MetadataError(
            f"the metadata at {sanitize(redact_url(place))} does not say which server it is of"
        )
    if not _covers(identifier, url):
        raise MetadataError(
            f"the metadata at {sanitize(redact_url(place))} is of another server, {sanitize(redact_url(identifier))}: a token for that is none for {redact_url(url)}"
        )
    issuers = _texts(document, "authorization_servers")
    if not issuers:
        raise MetadataError(
            f"the metadata at {sanitize(redact_url(place))} does not say who issues tokens for {redact_url(url)}"
        )
    return ProtectedResource(identifier, issuers, _texts(document, "scopes_supported"))


def _covers(resource: str, url: str) -> bool:
    """Whether a resource is a server, or is above it in the same origin."""
    try:
        named, meant = urlsplit(resource), urlsplit(url)
        same = _origin(named) == _origin(meant)
    except ValueError:
        return False
    path = named.path.rstrip("/")
    return (
        same
        and named.username is None
        and "#" not in resource
        and named.query in {"", meant.query}
        and f"{meant.path}/".startswith(f"{path}/")
    )


def validate_issuer(document: Mapping[str, Any], place: str, name: str) -> AuthorizationServer:
    """Read what an issuer says of itself.

    Args:
        document: The metadata.
        place: Where it was.
        name: Whose it was looked for.

    Raises:
        MetadataError: It is another issuer's, or nobody gets tokens by it.
    """
    said = _text(document, "issuer")
    if said is None or not same_issuer(said, name):
        raise MetadataError(
            f"the metadata at {sanitize(redact_url(place))} is of another issuer, {sanitize(said)}, than the server names, {sanitize(name)}"
        )
    token_endpoint = _endpoint(document, "token_endpoint", place)
    if token_endpoint is None:
        raise MetadataError(f"the metadata at {sanitize(redact_url(place))} has no token_endpoint")
    return AuthorizationServer(
        said,
        token_endpoint,
        _endpoint(document, "authorization_endpoint", place),
        _endpoint(document, "registration_endpoint", place),
        _endpoint(document, "revocation_endpoint", place),
        scopes=_texts(document, "scopes_supported") or (),
        methods=_texts(document, "token_endpoint_auth_methods_supported"),
        pkce="S256" in (_texts(document, "code_challenge_methods_supported") or ()),
        says_itself=document.get("authorization_response_iss_parameter_supported") is True,
        reads_documents=document.get("client_id_metadata_document_supported") is True,
    )


def same_issuer(one: str, other: str) -> bool:
    """Whether two identifiers are one issuer's: they have the same metadata."""
    return one == other or one.removesuffix("/") == other.removesuffix("/")


def default_issuer(url: str) -> AuthorizationServer:
    """Return what a server of revision 2025-03-26 is as an issuer that has no metadata; PKCE is required of it there."""
    origin = origin_of(url)
    return AuthorizationServer(
        origin, f"{origin}/token", f"{origin}/authorize", f"{origin}/register", methods=None, pkce=True
    )


def choose_issuer(resource: ProtectedResource, *wanted: str | None) -> str:
    """Return which of the issuers to log in at: the first of those wanted that is among them, or else the first of all."""
    for name in wanted:
        for issuer in resource.issuers:
            if name is not None and same_issuer(issuer, name):
                return issuer
    return resource.issuers[0]


def _endpoint(document: Mapping[str, Any], name: str, place: str) -> str | None:
    address = _text(document, name)
    if address is not None:
        _address(address, f"in the metadata at {sanitize(redact_url(place))}, {name}")
    return address


def _address(text: str, what: str) -> SplitResult:
    try:
        return read_address(text, what)
    except ValueError as error:
        raise MetadataError(sanitize(error)) from None


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) and value else None


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return the texts of a list; None where there is no list."""
    value: Sequence[Any] | None = document.get(name)
    if not isinstance(value, list):
        return None
    return tuple(dict.fromkeys(each for each in value[:_MOST] if isinstance(each, str) and each))


_LATER: Final = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR}
"""What says nothing about whether there is a document, as all above 501, which says that there is none."""


@attrs.frozen
class DiscoveryResult:
    """Where to log in.

    Attributes:
        server: What may be told of the server's URL.
        resource: For what tokens are to be issued.
        issuer: By whom.
        listed: What the server lists of what they may have to allow, if it does.
        guessed: Whether nobody has said any of that, as in revision 2025-03-26.
    """

    server: str
    resource: str
    issuer: AuthorizationServer
    listed: tuple[str, ...] | None = None
    guessed: bool = False


async def discover(
    web: OAuthHttp, url: str, named: str | None, wanted: Sequence[str | None]
) -> DiscoveryResult:
    """Find out where to log in.

    Args:
        web: Who asks.
        url: The server's.
        named: Where its challenge says that its metadata is.
        wanted: At whom to log in, if the server names several.

    Raises:
        MetadataError: What the server, or the issuer, says cannot be used.
        IssuerUnavailableError: One of them cannot be asked now.
    """
    failure: IssuerUnavailableError | None = None
    try:
        resource = await find_resource(web, url, named)
    except IssuerUnavailableError as error:
        resource, failure = None, error
    if resource is not None:
        name = choose_issuer(resource, *wanted)
        return DiscoveryResult(
            redact_url(url), resource.identifier, await _find_issuer(web, name), resource.scopes
        )
    own = origin_of(url)
    if failure is not None and any(name is not None and not same_issuer(name, own) for name in wanted):
        # The server has another issuer. A login there outlasts a failure of the server's metadata.
        raise failure
    # It may be of 2025-03-26, where each server is its own issuer.
    identifier = server_uri(url).partition("?")[0]  # a page shows it, and a browser keeps it
    try:
        return DiscoveryResult(redact_url(url), identifier, await _find_issuer(web, own))
    except MetadataError as error:
        if failure is not None:
            raise failure from None
        if not isinstance(error, _NoMetadataError):
            raise
        return DiscoveryResult(redact_url(url), identifier, default_issuer(url), guessed=True)


async def find_resource(web: OAuthHttp, url: str, named: str | None) -> ProtectedResource | None:
    """Ask a server who issues tokens for it; None if it does not say.

    A failure at one place, such as 502 from a proxy that forwards only ``/mcp``, leaves the other places to ask.

    Raises:
        MetadataError: What it says cannot be used.
        IssuerUnavailableError: No place has a document, and at least one could not be asked.
    """
    failure: IssuerUnavailableError | None = None
    for place in resource_places(url, named):
        if place == named and not _may_be_asked(place):
            continue  # a server behind a proxy that ends TLS may say http://; it has its metadata at the usual place, too
        try:
            document = _document(await web.get(place), place)
        except IssuerUnavailableError as error:
            failure = failure or error
            continue
        if document is not None:
            return validate_resource(document, place, url)
    if failure is not None:
        raise failure
    return None


def _may_be_asked(place: str) -> bool:
    try:
        read_address(place, "resource_metadata")
    except ValueError:
        return False
    return True


class _NoMetadataError(MetadataError):
    """An issuer has no metadata at all."""


async def _find_issuer(web: OAuthHttp, name: str) -> AuthorizationServer:
    failure: MetadataError | IssuerUnavailableError | None = None
    places, moved = issuer_places(name), ""
    for place in places:
        try:
            answer = await web.get(place)
            document = _document(answer, place)
            if document is not None:
                return validate_issuer(document, place, name)
            moved = moved or answer.elsewhere or ""
        except (MetadataError, IssuerUnavailableError) as error:
            failure = failure or error
    hint = f"; {sanitize(redact_url(moved))} is named instead, and nobody is led elsewhere" if moved else ""
    raise failure or _NoMetadataError(
        f"{sanitize(name)} has no metadata, neither at {sanitize(' nor at '.join(places))}{hint}"
    )


def _document(answer: OAuthResponse, place: str) -> Mapping[str, Any] | None:
    """Return a document; None if there is none at its place.

    Raises:
        IssuerUnavailableError: Whether there is one cannot be told now.
    """
    if answer.status in _LATER or answer.status > HTTPStatus.NOT_IMPLEMENTED:
        raise IssuerUnavailableError(f"{sanitize(redact_url(place))} answered {answer.status}")
    return answer.document if succeeded(answer.status) else None
