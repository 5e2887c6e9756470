"""The table of methods, capabilities, and what results begin and end with."""

import pytest

from mcpbus.core.state import NO_STATE
from mcpbus.dispatch.methods import METHODS, initialize_result, server_capabilities
from mcpbus.protocol.errors import METHOD_NOT_FOUND, ProtocolError
from mcpbus.protocol.messages import Icon
from mcpbus.protocol.revisions import MODERN_VERSIONS, REVISIONS, Era
from mcpbus.server import Server

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
LEGACY = [name for name in REVISIONS if name not in MODERN_VERSIONS]


@pytest.fixture
def everything(server):
    server.add_tool(lambda: "t", name="t")
    server.add_prompt(lambda a: a, name="p")
    server.add_resource("x://a", lambda: "a", name="a")
    server.completion("p", "a")(lambda value: [])
    server.runner.inline = True
    return server


CALLS = {
    "tools/call": {"name": "t"},
    "prompts/get": {"name": "p", "arguments": {"a": ""}},
    "resources/read": {"uri": "x://a"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": ""},
    },
}
TASKS = {name for name in METHODS if name.startswith("tasks/")}
"""Methods about something that only a bus has: their tests are among those of tasks."""
CACHEABLE = {
    "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read",
}  # fmt: skip


async def answered(client, method):
    if METHODS[method].answer is not None:
        return client.ask(method)
    return await client.run(method, **CALLS[method])


@pytest.mark.parametrize(
    ("revision", "method"),
    [
        (name, method)
        for name, revision in REVISIONS.items()
        for method, row in METHODS.items()
        if revision.era in row.eras and method not in TASKS
    ],
)
async def test_every_result_carries_what_its_revision_wants_and_nothing_else(
    everything, connect, method, revision
):  # K-1, K-2, K-6, J-30, M-7
    result = await answered(connect(everything, revision), method)
    modern = revision in MODERN_VERSIONS
    assert (result.get("resultType") == "complete") is modern
    assert (SERVER_INFO in result.get("_meta", {})) is modern
    assert ("ttlMs" in result) is ("cacheScope" in result) is (modern and method in CACHEABLE)


@pytest.mark.parametrize(
    ("method", "eras"),
    [
        ("server/discover", {Era.MODERN}),
        ("ping", {Era.LEGACY}),
        ("tools/call", {Era.LEGACY, Era.MODERN}),
        ("initialize", set()),
        ("nonsense", set()),
    ],
)
def test_a_method_exists_in_its_eras(method, eras):  # M-14, N-4
    assert (METHODS[method].eras if method in METHODS else set()) == eras


@pytest.mark.parametrize(
    "method", [method for method in METHODS if method not in TASKS | {"ping", "server/discover"}]
)
async def test_a_method_without_its_capability_does_not_exist(connect, method):  # M-6, M-13
    with pytest.raises(ProtocolError) as refused:
        await answered(connect(Server("s", capabilities=())), method)
    assert refused.value.code == METHOD_NOT_FOUND


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_method_that_does_not_exist_is_not_asked_for_its_params(revision):
    async with Server("s").open() as bus, bus.connect(revision=revision) as client:
        with pytest.raises(ProtocolError) as refused:
            await client.request("prompts/get", {"name": 7})
        assert refused.value.code == METHOD_NOT_FOUND


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("stateless", [False, True])
def test_capabilities_are_those_that_the_revision_and_the_way_of_serving_have(
    everything, revision, stateless
):  # L-17, L-19, Q-1, TL-1
    declared = server_capabilities(everything.features, REVISIONS[revision], stateless=stateless)
    live = not stateless or revision in MODERN_VERSIONS
    changes = {"listChanged": True} if live else {}
    expected = {
        "tools": changes,
        "prompts": changes,
        "resources": {"subscribe": True, **changes} if live else {},
        "logging": {},
        "completions": {},
    }
    if not live:
        del expected["logging"]
    if revision == "2024-11-05":
        del expected["completions"]
    assert declared == expected


def test_only_what_is_there_or_declared_is_offered():
    assert server_capabilities(Server("s").features, REVISIONS["2025-11-25"], stateless=True) == {"tools": {}}
    gateway = Server("s", capabilities=("prompts",))
    assert server_capabilities(gateway.features, REVISIONS["2025-11-25"], stateless=True) == {"prompts": {}}


def test_discovery_tells_revisions_capabilities_instructions_and_who_the_server_is(connect):  # M-5
    server = Server("s", version="2", instructions="Be kind.", list_ttl=1)
    assert connect(server).ask("server/discover") == {
        "supportedVersions": list(MODERN_VERSIONS),
        "capabilities": {"logging": {}, "tools": {"listChanged": True}},
        "instructions": "Be kind.",
        "resultType": "complete",
        "ttlMs": 1000,
        "cacheScope": "public",
        "_meta": {SERVER_INFO: {"name": "s", "version": "2"}},
    }


@pytest.mark.parametrize(
    ("revision", "members"),
    [
        ("2024-11-05", set()),
        ("2025-03-26", set()),
        ("2025-06-18", {"title"}),
        ("2025-11-25", {"title", "description", "websiteUrl", "icons"}),
    ],
)
def test_the_server_says_of_itself_what_the_revision_knows(revision, members):  # L-9
    import msgspec

    server = Server(
        "s",
        title="S",
        description="d",
        website_url="https://example.com",
        icons=[Icon("data:,")],
        instructions="i",
    )
    result = msgspec.json.decode(
        initialize_result(server, server.features, REVISIONS[revision], stateless=False)
    )
    assert result["protocolVersion"] == revision
    assert result["instructions"] == "i"
    assert result["serverInfo"].keys() == {"name", "version"} | members


async def test_the_icons_of_the_server_are_told_to_who_asks_for_it_and_in_no_other_result(connect):
    server = Server("s", title="S", icons=[Icon("data:image/png;base64," + "A" * 10_000)])
    server.add_tool(lambda: "said", name="t")
    server.runner.inline = True
    client = connect(server)
    asked = client.ask("server/discover")
    others = [client.ask("tools/list"), await client.call("t")]
    assert asked["_meta"][SERVER_INFO].keys() == {"name", "version", "title", "icons"}
    assert all(other["_meta"][SERVER_INFO].keys() == {"name", "version", "title"} for other in others)


@pytest.mark.parametrize("revision", LEGACY)
def test_an_empty_result_is_an_empty_object(server, revision):  # N-1
    assert server.tails[REVISIONS[revision]].alone == b"{}"


@pytest.mark.parametrize("options", [{"page_size": 0}, {"list_ttl": -1}])
def test_an_option_out_of_range_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Server("s", **options)


async def test_a_lifespan_is_opened_with_the_server(server):
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def lifespan(opened):
        yield opened.name

    async with Server("s", lifespan=lifespan).lifespan_context() as state:
        assert state == "s"
    async with server.lifespan_context() as state:
        assert state is NO_STATE
