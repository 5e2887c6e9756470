"""A server behind a login, its issuer, and the person who logs in, all in memory."""

import json
from contextlib import asynccontextmanager

import httpx2
import trio
from authority import Authority
from internet import Internet, answer

from mcpbus import Server
from mcpbus.client import OAuth, connect_http
from mcpbus.testing import open_bus

EPOCH = 1_800_000_000.0
META = "/.well-known/oauth-protected-resource/mcp"


def now():
    return EPOCH + trio.current_time()


class World:
    """See the module.

    Attributes:
        net: All hosts.
        url: The server's.
        issuer: Who issues tokens for it.
        issuers: All who do.
        document: What the server says of itself.
        needs: The scopes that a call of each tool takes, and by "" those that everything does.
        challenges: Whether it says where its metadata is, and what it takes.
        person: Shows the page to whoever logs in.
        pages: How many pages were shown.
        absent: Seconds that the person takes.
    """

    def __init__(self, bus, url="https://mcp.example/mcp", issuer="https://id.example"):
        self.net = Internet()
        self.url = url
        self.host = httpx2.URL(url).host
        self.issuer = Authority(issuer, now)
        self.issuers = [self.issuer]
        self.net.hosts[self.issuer.host] = self.issuer
        self.net.hosts[self.host] = self._serve
        self.document = {"resource": url, "authorization_servers": [issuer]}
        self.needs = {"": ["read"], "write": ["write"]}
        self.challenges = True
        self.instead = {}
        self.pages = 0
        self.absent = 0.0
        self.calls = []
        self._server = httpx2.ASGITransport(bus.asgi(allowed_hosts=[self.host]))

    # -- the server ------------------------------------------------------------------------------

    async def _serve(self, request):
        path = request.url.path
        if path in self.instead:
            instead = self.instead[path]
            return instead(request) if callable(instead) else instead
        if path == META and self.document is not None:
            return answer(json=self.document)
        if path != "/mcp":
            return answer(404, json={})
        refused = self._guard(request)
        if refused is not None:
            return refused
        return await self._server.handle_async_request(request)

    def _guard(self, request):
        said = json.loads(request.content) if request.content else {}
        tool = said.get("params", {}).get("name", "") if isinstance(said, dict) else ""
        needed = [*self.needs[""], *self.needs.get(tool, [])]
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        granted = next((found for each in self.issuers if (found := each.find(token))), None)
        self.calls.append((said.get("method") if isinstance(said, dict) else "", tool, token))
        where = f', resource_metadata="https://{self.host}{META}"' if self.challenges else ""
        if (
            scheme != "Bearer"
            or granted is None
            or granted.resource != (self.document or {}).get("resource", self.url)
        ):
            error = ', error="invalid_token", error_description="it is no good"' if token else ""
            scope = f' scope="{" ".join(needed)}"' if self.challenges else " realm=x"
            return answer(401, www_authenticate=f"Bearer{scope}{where}{error}")
        if set(needed) - set(granted.scope.split()):
            return answer(
                403,
                www_authenticate=f'Bearer error="insufficient_scope", scope="{" ".join(needed)}"{where}',
            )
        return None

    # -- the client ------------------------------------------------------------------------------

    async def person(self, page):
        """Log in, and agree."""
        self.pages += 1
        await trio.sleep(self.absent)
        return self._issuer_of(page).authorize(page)

    def _issuer_of(self, page):
        return next(each for each in self.issuers if page.startswith(each.metadata["authorization_endpoint"]))

    def auth(self, **options):
        return OAuth(**{"open_page": self.person, "clock": now, **options})

    @asynccontextmanager
    async def connect(self, auth=None, **options):
        async with connect_http(self.url, auth=auth or self.auth(), **options) as client:
            yield client

    def move(self, name):
        """Have another issuer issue the tokens from now on."""
        other = Authority(name, now)
        self.net.hosts[other.host] = other
        self.issuers.append(other)
        self.document = {**self.document, "authorization_servers": [name]}
        return other


@asynccontextmanager
async def open_world(**options):
    """Open a world, which all requests of this process go to."""
    server = Server("vault")

    @server.tool
    async def read() -> str:
        return "read"

    @server.tool
    async def write() -> str:
        return "written"

    async with open_bus(server) as bus:
        world = World(bus, **options)
        with world.net.instead_of_the_other_one():
            yield world


async def call(client, tool="read"):
    """Call a tool, and return what it says."""
    return (await client.call_tool(tool))["content"][0]["text"]
