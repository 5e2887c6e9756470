"""Requests to issuers, and to servers for their metadata: over HTTP, for short documents, and with short deadlines.

Redirects are not followed: a document is where its URL says, and a request is for no other address. A request to what a server has
named goes only to an address that is no nearer to this machine than the server (`NetworkZone`), and to the very address that was
validated: a name could lead elsewhere the next time.

A server may name any address as that of its issuer, and a client would ask there, from behind a firewall, or on the very machine
(specification, "Security Best Practices", "Server-Side Request Forgery"). What is as far away as the server it could ask without us.
"""

import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs
import msgspec
import trio

from mcpbus.client.errors import redact_url
from mcpbus.client.http_library import certificates, httpx2
from mcpbus.client.http_responses import explain, media_type
from mcpbus.client.oauth.errors import IssuerUnavailableError, MetadataError, sanitize
from mcpbus.protocol.http.options import is_loopback_host
from mcpbus.protocol.revisions import LATEST


def succeeded(status: int) -> bool:
    """Whether a status reports success. Issuers answer 200, 201 and 204 where their RFC names only one of them."""
    return 200 <= status < 300


@attrs.frozen
class OAuthResponse:
    """What was answered.

    Attributes:
        status: The status.
        document: The JSON object; None if it is none.
        elsewhere: Where it is instead, if the answer says so.
    """

    status: int
    document: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    elsewhere: str | None = None


class OAuthHttp(Protocol):
    """The client that sends these requests, as `OAuthHttpClient` does."""

    async def get(self, url: str) -> OAuthResponse:
        """Ask for a document.

        Raises:
            IssuerUnavailableError: There is no answer in time, or it is too long.
            MetadataError: It is not to be asked for.
        """

    def check_page(self, url: str) -> None:
        """Refuse a page that nobody is to be shown, as far as its address tells: the browser looks up names by itself.

        Raises:
            MetadataError: It is on this machine or in its network, and the server that names it is not.
        """

    async def post_form(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> OAuthResponse:
        """Post a form, and raise what `get` does."""

    async def post_json(self, url: str, body: Mapping[str, Any]) -> OAuthResponse:
        """Post a JSON object, and raise what `get` does."""


_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
_LOW_BITS: Final = 2**32 - 1


class NetworkZone(IntEnum):
    """From far to near."""

    ANYWHERE = 0
    """Everybody reaches it."""
    NETWORK = 1
    """Who is in the same private network reaches it, or nobody knows who."""
    LINK = 2
    """Who is on the same link does, or on the same machine, as where a cloud keeps its credentials."""
    HERE = 3
    """It is this machine."""


def nearness(address: str) -> NetworkZone:
    """Return how near an IP address is.

    Raises:
        ValueError: It is none.
    """
    found = _inner(ipaddress.ip_address(address.partition("%")[0]))
    if found.is_loopback or found.is_unspecified:
        return NetworkZone.HERE
    if found.is_link_local or found.is_multicast:
        return NetworkZone.LINK
    return NetworkZone.ANYWHERE if found.is_global else NetworkZone.NETWORK


def _inner(address: _Address) -> _Address:
    """Return the IPv4 address that one of IPv6 stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & _LOW_BITS)
    return address.ipv4_mapped or address.sixtofour or address


LONGEST_DOCUMENT: Final = 512 * 1024
"""Bytes of an answer; of a longer one nothing is believed."""
SECONDS: Final = 10.0
"""How long each answer may take, in all."""
_MOST_ADDRESSES: Final = 4
"""How many addresses of one host are tried."""
_FORM: Final = "application/x-www-form-urlencoded"


class OAuthHttpClient:
    """The web, as the client of one server may ask it.

    Args:
        reach: How near the server is.
        trusted: Hosts that may be asked wherever they are: the server's own, and those that the user has named.

    Attributes:
        reach: As given.
    """

    def __init__(self, reach: NetworkZone, trusted: Collection[str]) -> None:
        self.reach = reach
        self._trusted = {host.lower() for host in trusted}

    async def get(self, url: str) -> OAuthResponse:
        """See `OAuthHttp`."""
        return await self._ask("GET", url, {"MCP-Protocol-Version": LATEST.name}, None)

    async def post_form(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> OAuthResponse:
        """See `OAuthHttp`."""
        fields = {"Content-Type": _FORM, **(headers or {})}
        return await self._ask("POST", url, fields, urlencode(form).encode())

    async def post_json(self, url: str, body: Mapping[str, Any]) -> OAuthResponse:
        """See `OAuthHttp`."""
        return await self._ask("POST", url, {"Content-Type": "application/json"}, msgspec.json.encode(body))

    def check_page(self, url: str) -> None:
        """See `OAuthHttp`."""
        host = (urlsplit(url).hostname or "").lower()
        if not self._may_be_anywhere(host) and _is_near(host, self.reach):
            raise self._too_near(url)

    def _may_be_anywhere(self, host: str) -> bool:
        return self.reach is NetworkZone.HERE or host in self._trusted

    async def _ask(
        self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> OAuthResponse:
        failure = IssuerUnavailableError(f"{sanitize(redact_url(url))} did not answer within {SECONDS:g} s")
        trusted = await certificates()
        # What is packed may be far longer than it looks.
        fields = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        with trio.move_on_after(SECONDS):
            for address in await self._addresses(url):
                try:
                    # By one connection for each: it is made to an address, and another host may have the same.
                    async with httpx2.AsyncClient(verify=trusted, timeout=SECONDS) as client:
                        request = client.build_request(verb, url, headers=fields, content=body)
                        return await _send(client, _sent_to(address, request), url)
                except httpx2.ConnectError as error:
                    failure = IssuerUnavailableError(explain(sanitize(redact_url(url)), error))
                except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
                    why = (
                        explain(sanitize(redact_url(url)), error)
                        if isinstance(error, httpx2.HTTPError)
                        else error
                    )
                    raise IssuerUnavailableError(sanitize(why)) from None
        raise failure

    async def _addresses(self, url: str) -> list[str | None]:
        """Return at which addresses to ask; None where whoever connects is to find it by the name.

        Raises:
            MetadataError: All are nearer than the server.
            IssuerUnavailableError: There are none.
        """
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if self._may_be_anywhere(host):
            return [None]
        if _goes_by_proxy(parts.scheme, host):
            # It looks the name up, and decides; what is no name can be judged here.
            if _is_near(host, self.reach):
                raise self._too_near(url)
            return [None]
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no name of a host"
            raise IssuerUnavailableError(
                f"the host of {sanitize(redact_url(url))} is not found: {why}"
            ) from None
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        allowed: list[str | None] = [each for each in addresses if not _is_near(each, self.reach)]
        if not allowed:
            raise self._too_near(url)
        return allowed[:_MOST_ADDRESSES]

    def _too_near(self, url: str) -> MetadataError:
        return MetadataError(
            f"{sanitize(redact_url(url))} is on this machine or in its network, and the server that names it is not, so it is left alone: "
            "if it is right, name the issuer yourself (issuer=)"
        )


def reach_of(url: str, peer: object) -> NetworkZone:
    """Return how near a server is.

    Args:
        url: Its URL.
        peer: The IP address at which it was reached, if that is known.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    # What a proxy reaches, only that knows; its own address says nothing of it.
    address = host if peer is None or _goes_by_proxy(parts.scheme, host) else str(peer)
    try:
        return nearness(address)
    except ValueError:
        return NetworkZone.HERE if is_loopback_host(address) else NetworkZone.ANYWHERE


def _is_near(address: str, reach: NetworkZone) -> bool:
    try:
        return nearness(address) > reach
    except ValueError:
        return f".{address.rstrip('.')}".endswith(".localhost")


def _goes_by_proxy(scheme: str, host: str) -> bool:
    """Whether the environment names a proxy for a host."""
    proxies = getproxies()
    return bool(proxies.get(scheme) or proxies.get("all")) and not proxy_bypass(host)


def _sent_to(address: str | None, request: httpx2.Request) -> httpx2.Request:
    """Have a request go to an address: for its host it is all the same, and that one's certificate is asked for."""
    if address is not None:
        request.extensions = {**request.extensions, "sni_hostname": request.url.raw_host.decode("ascii")}
        request.url = request.url.copy_with(host=address)
    return request


async def _send(client: httpx2.AsyncClient, request: httpx2.Request, url: str) -> OAuthResponse:
    response = await client.send(request, stream=True, follow_redirects=False)
    body = bytearray()
    async with _closing(response.aclose):
        if media_type(response) == "text/event-stream":
            # A server may answer each GET with its stream of events, which has no end. That is no answer, and waited for in vain.
            raise IssuerUnavailableError(
                f"{sanitize(redact_url(url))} answers with a stream of events, and not with JSON"
            )
        async for piece in response.aiter_raw():
            # To its end, or that of our patience: what is left in the middle is left to the garbage collector.
            if len(body) <= LONGEST_DOCUMENT:
                body += piece
    if len(body) > LONGEST_DOCUMENT:
        raise IssuerUnavailableError(
            f"the answer of {sanitize(redact_url(url))} is longer than {LONGEST_DOCUMENT} bytes"
        )
    elsewhere = response.headers.get("location") if response.is_redirect else None
    return OAuthResponse(response.status_code, _read(bytes(body)), elsewhere)


@asynccontextmanager
async def _closing(close: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await close()


def _read(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
