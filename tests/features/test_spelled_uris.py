"""Resources by URIs that clients spell otherwise than authors: reads, completions, duplicates, mounts, subscriptions."""

import re

import pytest
import trio

from mcpbus import Context, ProtocolError, RegistrationError, Server
from mcpbus.protocol.revisions import REVISIONS, Era
from mcpbus.testing import open_bus, open_client

UPDATED = "notifications/resources/updated"
SPELLED = ["config://größe", "config://gr%C3%B6%C3%9Fe", "CONFIG://%67r%c3%b6ße"]
BRANCH = ["git://größe/{branch}@main", "git://gr%c3%b6%C3%9fe/{branch}%40main"]


def make_server(**options):
    server = Server("spelled", **options)

    @server.resource("config://größe")
    async def size() -> str:
        return "XL"

    @server.resource(BRANCH[0])
    async def read(branch: str) -> str:
        return branch

    @server.completion(BRANCH[1], "branch")
    async def complete(typed: str) -> list[str]:
        return [f"{typed}/login"]

    return server


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("uri", SPELLED)
async def test_a_fixed_uri_is_read_in_every_spelling_and_answered_as_it_was_sent(uri, mounted):
    server, prefix = make_server(), ""
    if mounted:
        server, below, prefix = Server("above"), server, "p_x/"
        server.mount(below, prefix="p_x")
    listed, sent = f"config://{prefix}größe", uri.replace("://", f"://{prefix.replace('_', '%5f')}")
    async with open_client(server) as client:
        assert [each["uri"] for each in await client.list_resources()] == [listed]
        [contents] = await client.read_resource(sent)
        assert (contents["text"], contents["uri"]) == ("XL", sent)


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("ref", BRANCH)
async def test_a_template_is_completed_and_read_in_every_spelling(ref, mounted):
    server = make_server()
    if mounted:
        server, below = Server("above"), server
        server.mount(below, prefix="p")
        ref = ref.replace("://", "://p/")
    async with open_client(server) as client:
        [template] = await client.list_resource_templates()
        assert template["uriTemplate"] == BRANCH[0].replace("://", "://p/" if mounted else "://")
        asked = {
            "ref": {"type": "ref/resource", "uri": ref},
            "argument": {"name": "branch", "value": "feature"},
        }
        found = await client.request("completion/complete", asked)
        assert found["completion"]["values"] == ["feature/login"]
        [contents] = await client.read_resource(ref.replace("{branch}", "feature%2Flogin"))
        assert contents["text"] == "feature/login"


@pytest.mark.parametrize("uri", [*SPELLED[1:], BRANCH[1]])
def test_another_spelling_is_taken_too_and_removes_what_is_there(uri):
    server = make_server()
    first = SPELLED[0] if uri in SPELLED else BRANCH[0]
    function = (lambda branch: "") if "{" in uri else (lambda: "")
    with pytest.raises(RegistrationError, match=re.escape(f"{uri!r} is registered already as {first!r}")):
        server.add_resource(uri, function)
    server.remove_resource(uri)
    server.add_resource(uri, function)


@pytest.mark.parametrize("order", [1, -1])
async def test_a_template_comes_first_that_has_the_uri_as_its_expansion(order):
    server = Server("x")
    for text in ["x://{a}", "x://{a}:{b}"][::order]:
        server.add_resource(text, lambda a, b="": f"{a} {b}") if "b" in text else server.add_resource(
            text, lambda a: a
        )
    async with open_client(server) as client:
        for uri, text in {"x://pp:q": "pp q", "x://pp%3Aq": "pp:q", "x://p@q": "p@q"}.items():
            assert (await client.read_resource(uri))[0]["text"] == text


async def test_what_needs_a_scope_needs_it_in_every_spelling():
    server = Server("x", auth=None)
    server.add_resource("x://größe", lambda: "", scopes=["read"])
    assert server.features.find_resource("X://gr%c3%b6%C3%9fe")[0][0].scopes == ("read",)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_subscriber_hears_of_a_resource_in_whatever_spelling(revision, autojump_clock):
    server = make_server()
    async with open_client(server, revision=revision) as client:
        async with client.listen(uris=[SPELLED[1], "git://gr%c3%b6ße/a%40b"]) as changes:
            for uri in ("config://gr%c3%b6%c3%9fe", "config://grösse", "git://größe/a@b/c"):
                server.resource_updated(uri)
            with trio.fail_after(10):
                heard = [await anext(changes) for _ in range(2)]
        assert [(method, params["uri"]) for method, params in heard] == [
            (UPDATED, "config://gr%c3%b6%c3%9fe"),
            (UPDATED, "git://größe/a@b/c"),
        ]


@pytest.mark.parametrize("revision", [name for name, each in REVISIONS.items() if each.era is Era.LEGACY])
async def test_a_subscription_is_one_and_ends_in_whatever_spelling(revision, autojump_clock):
    sessions = []
    server = Server("x")

    @server.on_session
    async def keep(session):
        sessions.append(session)

    server.add_resource("x://é", lambda: "")
    async with open_bus(server) as bus, bus.connect(revision=revision) as client:
        held = []
        for uri in ("x://é", "X://%c3%A9"):
            await client.request("resources/subscribe", {"uri": uri})
            held.append(sessions[0].account.held)
        assert (list(sessions[0].subscriptions), bus.topics.uris) == (["x://é"], ["x://é"])
        assert held[0] == held[1]
        await client.request("resources/unsubscribe", {"uri": "x://%C3%A9"})
        assert (list(sessions[0].subscriptions), bus.topics.uris) == ([], [])
        assert sessions[0].account.held < held[0]


async def test_a_handler_and_its_middleware_have_the_uri_as_it_was_sent():
    seen = []

    async def middleware(invocation, call_next):
        seen.append(invocation.name)
        return await call_next(invocation)

    server = Server("x", middleware=[middleware])

    @server.resource("x://größe/{name}")
    async def read(name: str, ctx: Context) -> str:
        return name

    async with open_client(server) as client:
        [contents] = await client.read_resource("x://gr%c3%b6ße/%c3%a9+")
        assert (contents["text"], contents["uri"]) == ("é+", "x://gr%c3%b6ße/%c3%a9+")
        assert seen == ["x://gr%c3%b6ße/%c3%a9+"]
        with pytest.raises(ProtocolError) as error:
            await client.read_resource("x://gr%c3%b6ße/%252e%252e%252f")
        assert error.value.data == {"uri": "x://gr%c3%b6ße/%252e%252e%252f"}
