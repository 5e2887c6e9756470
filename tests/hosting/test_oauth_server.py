"""A hosted server that is its own OAuth server: a client goes from the refusal to a call, by the addresses that it is given alone."""

import base64
import hashlib
import json
import re
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from hosted_clients import server_of

import mcpbus
from mcpbus.testing import open_probe
from tests.hosting.fixtures import LEGACY

REDIRECT = "http://127.0.0.1:9/callback"
VERIFIER = "v" * 64
WHO = {"name": "who", "arguments": {}}


class OAuthClient:
    """A client of OAuth that knows one endpoint, and finds the rest."""

    def __init__(self, probe):
        self.probe = probe
        self.server = {}
        self.client_id = ""
        self.tokens = {}

    async def get(self, url):
        target = url.removeprefix("http://127.0.0.1:8000")
        assert target.startswith("/"), f"{url} is of this server"
        return await self.probe.send("GET", target=target).ended()

    async def post(self, url, body, kind):
        target = urlsplit(url).path
        return await self.probe.send("POST", body, {"content-type": kind}, target=target).ended()

    async def form(self, url, **fields):
        body = urlencode(fields | {"client_id": self.client_id}).encode()
        return await self.post(url, body, "application/x-www-form-urlencoded")

    async def discover(self):
        """Read the challenge of the endpoint, the metadata of the resource, and that of its authorization server."""
        refused = await self.probe.request("tools/call", WHO).ended()
        assert refused.status == 401
        [place] = re.findall(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
        resource = json.loads((await self.get(place)).body)
        assert resource["resource"] == "http://127.0.0.1:8000/mcp"
        [issuer] = resource["authorization_servers"]
        found = await self.get(f"{issuer.rstrip('/')}/.well-known/oauth-authorization-server")
        self.server = json.loads(found.body)

    async def register(self):
        wanted = {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
        registered = await self.post(
            self.server["registration_endpoint"], json.dumps(wanted).encode(), "application/json"
        )
        assert registered.status == 201
        self.client_id = json.loads(registered.body)["client_id"]

    async def authorize(self):
        digest = hashlib.sha256(VERIFIER.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": REDIRECT,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "state": "s",
        }
        answered = await self.get(f"{self.server['authorization_endpoint']}?{urlencode(query)}")
        assert answered.status == 302
        given = parse_qs(urlsplit(answered.headers["location"]).query)
        assert given["state"] == ["s"]
        return given["code"][0]

    async def redeem(self, code, verifier=VERIFIER):
        return await self.form(
            self.server["token_endpoint"],
            grant_type="authorization_code",
            code=code,
            redirect_uri=REDIRECT,
            code_verifier=verifier,
        )

    async def login(self):
        await self.discover()
        await self.register()
        issued = await self.redeem(await self.authorize())
        assert issued.status == 200
        self.tokens = json.loads(issued.body)

    @property
    def bearer(self):
        return {"authorization": f"Bearer {self.tokens['access_token']}"}


@pytest.fixture
async def client(loop):
    async with mcpbus.host(server_of("oauth"), loop=loop).open() as bus, open_probe(bus.asgi()) as probe:
        yield OAuthClient(probe)


async def test_a_client_goes_from_the_refusal_to_a_call(client, revision):
    await client.login()
    caller = client.probe if revision != LEGACY else await client.probe.initialize(headers=client.bearer)
    given = {} if revision == LEGACY else {"headers": client.bearer}
    reply = await caller.request("tools/call", WHO, **given).reply()
    assert reply["result"]["structuredContent"] == {"result": client.client_id}


async def test_a_code_serves_once_and_its_own_client_alone(client):
    await client.discover()
    await client.register()
    code = await client.authorize()
    for verifier, status in (("w" * 64, 400), (VERIFIER, 200), (VERIFIER, 400)):
        answered = await client.redeem(code, verifier)
        assert answered.status == status
        if status == 400:
            assert json.loads(answered.body)["error"] == "invalid_grant"


async def test_a_session_goes_on_with_a_refreshed_token_and_not_with_a_revoked_one(client):
    await client.login()
    session = await client.probe.initialize(headers=client.bearer)
    refreshed = await client.form(
        client.server["token_endpoint"],
        grant_type="refresh_token",
        refresh_token=client.tokens["refresh_token"],
    )
    client.tokens = json.loads(refreshed.body)
    session._headers.update(client.bearer)
    assert (await session.request("tools/call", WHO).ended()).status == 200
    # The SDK wants the field of a secret there, also of a client that has none.
    revoked = await client.form(
        client.server["revocation_endpoint"], token=client.tokens["access_token"], client_secret=""
    )
    assert revoked.status == 200
    assert (await session.request("tools/call", WHO).ended()).status == 401


async def test_a_session_belongs_to_the_client_that_opened_it(client):
    await client.login()
    session = await client.probe.initialize(headers=client.bearer)
    other = OAuthClient(client.probe)
    await other.login()
    session._headers.update(other.bearer)
    assert (await session.request("tools/call", WHO).ended()).status == 404
