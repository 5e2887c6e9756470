"""Where a server tells who issues tokens for it, to whoever asks."""

import json

import pytest
import trio
from channels import ws
from guarded import METADATA, bearing, challenge_of, guarded, make_server
from starlette.applications import Starlette
from starlette.routing import Mount

from mcpbus import HttpOptions, Server
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.http.resource_metadata import ResourceMetadata
from mcpbus.testing import InMemoryIssuer, open_probe

PLACES = [
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/sse",
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("origin", [None, "http://localhost:3000", "https://anywhere.example"])
async def test_it_is_found_at_each_place_by_anybody_from_anywhere(place, origin, autojump_clock):
    async with guarded(name="Files", documentation="https://docs.example") as it:
        headers = {} if origin is None else {"origin": origin}
        answer = await it.probe.send("GET", headers=headers, target=place).ended()
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["cache-control"] == "public, max-age=300"
        assert json.loads(answer.body) == {
            "resource": "http://localhost/mcp",
            "authorization_servers": ["https://issuer.test"],
            "scopes_supported": ["files:read"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Files",
            "resource_documentation": "https://docs.example",
        }
        whole = answer.body
        answer = await it.probe.send("HEAD", headers=headers, target=place).ended()
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", str(len(whole)))


async def test_what_is_not_said_is_left_out(autojump_clock):
    async with guarded(scopes=()) as it:
        answer = await it.probe.send("GET", target=PLACES[0]).ended()
        assert json.loads(answer.body) == {
            "resource": "http://localhost/mcp",
            "authorization_servers": ["https://issuer.test"],
            "bearer_methods_supported": ["header"],
        }
        assert "scope" not in challenge_of(await it.send("modern"))


@pytest.mark.parametrize("place", PLACES)
async def test_a_browser_asks_before_it_looks(place, autojump_clock):
    async with guarded() as it:
        asked = {
            "origin": "https://anywhere.example",
            "access-control-request-method": "GET",
            "access-control-request-headers": "mcp-protocol-version",
        }
        answer = await it.probe.send("OPTIONS", headers=asked, target=place).ended()
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
        assert answer.headers["access-control-allow-headers"] == "mcp-protocol-version"
        assert "GET" in answer.headers["access-control-allow-methods"]


async def test_it_cannot_be_changed(autojump_clock):
    async with guarded() as it:
        answer = await it.probe.send("POST", b"{}", target=PLACES[0]).ended()
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


@pytest.mark.parametrize(
    "place", [f"{PLACES[0]}/more", f"{PLACES[1]}s", "/.well-known/oauth-authorization-server"]
)
async def test_it_is_found_nowhere_else(place, autojump_clock):
    async with guarded() as it:
        assert (await it.probe.send("GET", target=place).ended()).status == 404


async def test_a_server_without_tokens_has_none(autojump_clock):
    async with Server("open").open() as bus, open_probe(bus.asgi()) as probe:
        assert (await probe.send("GET", target=PLACES[0]).ended()).status == 404


async def test_the_host_that_a_request_names_changes_nothing(autojump_clock):
    async with guarded() as it:
        for place, headers in ((PLACES[0], {"host": "evil.example"}), ("/mcp", {"host": "localhost:9999"})):
            answer = await it.probe.send("GET", headers=headers, target=place).ended()
            assert "evil" not in f"{answer.headers}{answer.body}"
            assert "9999" not in f"{answer.headers}{answer.body}"
        assert challenge_of(answer)["resource_metadata"] == METADATA


@pytest.mark.parametrize(
    "place",
    [
        "/tools/.well-known/oauth-protected-resource",
        "/tools/.well-known/oauth-protected-resource/mcp",
        "/tools/.well-known/oauth-protected-resource/tools/mcp",
        "/tools/.well-known/oauth-protected-resource/sse",
    ],
)
async def test_it_is_found_under_a_mount(place, autojump_clock):
    issuer = InMemoryIssuer()
    server = make_server(auth=issuer.protect("http://localhost/tools/mcp"))
    async with server.open() as bus:
        web = Starlette(routes=[Mount("/tools", bus.asgi())])
        async with open_probe(web, path="/tools/mcp") as probe:
            answer = await probe.send("GET", target=place).ended()
            assert json.loads(answer.body)["resource"] == "http://localhost/tools/mcp"
            refused = await probe.request("tools/list").ended()
            expected = "http://localhost/.well-known/oauth-protected-resource/tools/mcp"
            assert challenge_of(refused)["resource_metadata"] == expected
            token = bearing(issuer.token())
            assert (await probe.request("tools/list", headers=token).ended()).status == 200
            async with ws(web, path="/tools/mcp") as client:
                assert client.status == 401
            async with ws(web, path="/tools/mcp", **token) as client:
                assert client.accepted
            await trio.testing.wait_all_tasks_blocked()


def test_a_path_that_has_to_be_encoded_is_compared_as_it_is():
    metadata = ResourceMetadata(b"{}", "/a b/mcp", HttpOptions())
    place = "/.well-known/oauth-protected-resource/a b/mcp"
    assert metadata.is_place(RequestHead("GET", place, Headers(())))


@pytest.mark.parametrize(
    ("path", "endpoint", "place", "found"),
    [
        ("/mcp", "/mcp", "/tools/mcp", True),
        ("/tools/files", "/mcp", "/tools/files", True),
        ("/tools/files", "/mcp", "/tools/mcp", True),
        ("/tools/files", "/mcp", "/files", False),
        ("/tools/files", "/mcp", "/other/mcp", False),
    ],
)
def test_a_mount_stands_before_the_path_and_may_be_named_or_not(path, endpoint, place, found):
    metadata = ResourceMetadata(b"{}", path, HttpOptions(path=endpoint))
    head = RequestHead("GET", f"/.well-known/oauth-protected-resource{place}", Headers(()), root="/tools")
    assert metadata.is_place(head) is found


@pytest.mark.parametrize(
    ("resource", "host", "status"),
    [
        ("https://mcp.example.com/mcp", "mcp.example.com", 401),
        ("https://mcp.example.com/mcp", "MCP.example.com:443", 401),
        ("https://[2001:db8::1]:8443/mcp", "[2001:db8::1]:8443", 401),
        ("https://mcp.example.com/mcp", "evil.example.com", 403),
    ],
)
async def test_the_server_answers_by_the_name_by_which_its_clients_know_it(
    resource, host, status, autojump_clock
):
    server = Server("files", auth=InMemoryIssuer().protect(resource))
    async with server.open() as bus, open_probe(bus.asgi()) as probe:
        assert (await probe.request("tools/list", headers={"host": host}).ended()).status == status
