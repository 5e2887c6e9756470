"""Hosts in memory, which whoever uses httpx2 reaches by their names: no sockets, and trio's time."""

import itertools
import socket
from contextlib import contextmanager
from json import dumps
from urllib.parse import urlsplit

import attrs
import httpx2
import pytest
import trio

from mcpbus.client import http_library


@attrs.frozen
class Visit:
    """One request to one host, and at which address it was made."""

    verb: str
    url: str
    address: str
    body: bytes = attrs.field(repr=False)
    headers: httpx2.Headers = attrs.field(repr=False)

    @property
    def path(self):
        return urlsplit(self.url).path

    @property
    def form(self):
        return dict(httpx2.QueryParams(self.body.decode()))


class Stream:
    """What a connection is known by."""

    def __init__(self, address):
        self.address = address

    def get_extra_info(self, info):
        return (self.address, 443) if info == "server_addr" else None


class Internet(trio.abc.HostnameResolver):
    """All hosts there are.

    Attributes:
        hosts: By the name of each, what answers requests.
        addresses: Those of hosts that are not somewhere far away.
        visits: What was asked, in order.
        down: Hosts that cannot be connected to.
        slow: How many seconds hosts take to answer.
    """

    def __init__(self):
        self.hosts = {}
        self.addresses = {}
        self.visits = []
        self.down = set()
        self.slow = {}

    def visited(self, host):
        return [visit for visit in self.visits if urlsplit(visit.url).hostname == host]

    async def getaddrinfo(self, host, port, *_):
        name = host.decode() if isinstance(host, bytes) else host
        if name not in self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in self._addresses(name)
        ]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError

    def _addresses(self, name):
        return self.addresses.get(name, ["93.184.216.34"])

    async def handle(self, request):
        """Answer a request, which may go to an address for a host."""
        host = urlsplit(f"//{request.headers['host']}").hostname
        addresses = self._addresses(host)
        address = addresses[0] if request.url.host == host else request.url.host
        if address not in addresses or host in self.down or address in self.down or host not in self.hosts:
            raise httpx2.ConnectError(f"nobody is at {host}")
        if request.url.host != host:
            assert request.extensions["sni_hostname"] == host
        body = await request.aread()
        url = str(request.url.copy_with(host=host))
        self.visits.append(Visit(request.method, url, address, body, request.headers))
        await trio.sleep(self.slow.get(host, 0))
        asked = httpx2.Request(request.method, url, headers=request.headers, content=body)
        response = await self.hosts[host](asked)
        response.extensions["network_stream"] = Stream(address)
        return response

    @contextmanager
    def instead_of_the_other_one(self):
        """Have all requests of this process go here."""
        http_library._certificates()  # which takes a thread otherwise, and no time of trio's
        with pytest.MonkeyPatch.context() as patch:

            async def handle(_, request):
                return await self.handle(request)

            patch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", handle)
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                patch.delenv(name, raising=False)
            trio.socket.set_custom_hostname_resolver(self)
            yield self


class Body(httpx2.AsyncByteStream):
    """A body that comes in pieces, one after the other or the same for ever."""

    def __init__(self, *pieces, seconds=0.0, endless=False):
        self.pieces = pieces
        self.seconds = seconds
        self.endless = endless

    async def __aiter__(self):
        for piece in itertools.cycle(self.pieces) if self.endless else self.pieces:
            await trio.sleep(self.seconds)
            yield piece


def answer(status=200, json=None, body=b"", **fields):
    """Make an answer: of an object, or of bytes, or of what yields them."""
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    if json is not None:
        body, headers = dumps(json).encode(), {"content-type": "application/json", **headers}
    return httpx2.Response(status, headers=headers, stream=Body(body) if isinstance(body, bytes) else body)
