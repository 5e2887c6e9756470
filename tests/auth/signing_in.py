"""The official SDK's OAuth client, with a browser that agrees to everything, and a server for which it logs in."""

import socket
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from mcpbus import Context, Server

TOLERATED = pytest.mark.filterwarnings(
    "ignore::mcp.shared.exceptions.MCPDeprecationWarning",
    "ignore:Async generator 'http(x|core)2:ResourceWarning",
)
_BACK = "http://127.0.0.1:1/callback"


def take_port():
    """Take a port, so that nobody else gets it: where it is reached, and what to bind to."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}", f"fd://{sock.detach()}"


class Storage:
    """What a client keeps of its tokens."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Browser:
    """Goes wherever an issuer sends it, until it is sent back to the client."""

    def __init__(self):
        self.visited = []
        self._result = None

    async def visit(self, url):
        url = httpx2.URL(url)
        self.visited.append(url)
        async with httpx2.AsyncClient(timeout=60) as client:
            while not str(url).startswith(_BACK):
                url = (await client.get(url)).next_request.url
        back = url.params
        self._result = AuthorizationCodeResult(code=back["code"], state=back["state"], iss=back["iss"])

    async def come_back(self):
        return self._result


@asynccontextmanager
async def signed_in(url, browser, storage):
    """Connect the official client to a server; it logs in when it is told to."""
    metadata = OAuthClientMetadata(
        redirect_uris=[_BACK],
        client_name="a test",
        grant_types=["authorization_code", "refresh_token"],
    )
    auth = OAuthClientProvider(url, metadata, storage, browser.visit, browser.come_back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


def make_server(auth):
    server = Server("files", auth=auth)

    @server.tool
    async def read(ctx: Context) -> str:
        return ctx.principal.subject

    @server.tool(scopes=["files:write"])
    async def write() -> str:
        return "written"

    return server


async def said(session, tool):
    """What a tool says that is called without arguments."""
    return (await session.call_tool(tool, {})).content[0].text
