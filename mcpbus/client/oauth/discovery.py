"""How a client finds out where to log in (specification, "Authorization Server Discovery")."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import attrs

from mcpbus.client.errors import redact_url
from mcpbus.client.oauth.errors import IssuerUnavailableError, MetadataError, sanitize
from mcpbus.client.oauth.metadata import (
    AuthorizationServer,
    ProtectedResource,
    choose_issuer,
    default_issuer,
    issuer_places,
    origin_of,
    resource_places,
    same_issuer,
    server_uri,
    validate_issuer,
    validate_resource,
)
from mcpbus.client.oauth.web import OAuthHttp, OAuthResponse, succeeded
from mcpbus.protocol.http.addresses import read_address

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
