"""Tools that are hidden for a while, by name or by tag, and whom that is told to."""

import pytest

from mcpbus import DELIVERED, RegistrationError, Server
from mcpbus.features.tool import tool
from mcpbus.protocol.errors import INVALID_PARAMS, ProtocolError
from mcpbus.protocol.revisions import LATEST_LEGACY
from mcpbus.testing import open_bus, wait_until_idle

LEGACY = LATEST_LEGACY.name


async def nothing() -> str:
    return "nothing"


def tagged(**options) -> Server:
    server = Server("s", **options)
    for name, tags in {"read": (), "write": ("admin",), "drop": ("admin", "beta"), "new": ("beta",)}.items():
        server.add_tool(nothing, name=name, tags=tags)
    return server


def names(client):
    return [tool["name"] for tool in client.ask("tools/list")["tools"]]


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ({"names": ["read"]}, ["write", "drop", "new"]),
        ({"tags": ["beta"]}, ["read", "write"]),
        ({"tags": {"admin", "beta"}}, ["read"]),
        ({"names": ["drop", "new"], "tags": ["admin"]}, ["read", "write", "new"]),
        ({"names": iter(["read", "new"])}, ["write", "drop"]),
        ({"names": []}, ["read", "write", "drop", "new"]),
    ],
)
def test_what_is_disabled_is_not_listed_and_comes_back_in_its_place(connect, chosen, left):
    server = tagged()
    client = connect(server)
    server.disable(**chosen)
    assert names(client) == left
    server.enable(names=["read", "write", "drop", "new"])
    assert names(client) == ["read", "write", "drop", "new"]


async def test_what_is_disabled_cannot_be_called(connect):
    server = tagged()
    client = connect(server)
    server.disable(names=["read"])
    with pytest.raises(ProtocolError, match="unknown tool 'read'") as refused:
        await client.call("read")
    assert refused.value.code == INVALID_PARAMS
    server.enable(tags=["admin"])
    assert "read" not in names(client)
    server.enable(names=["read"])
    assert await client.text("read") == "nothing"


def test_its_name_stays_taken_until_it_is_removed(connect):
    server = tagged()
    server.disable(tags=["beta"])
    with pytest.raises(RegistrationError, match="tool 'drop' is registered already"):
        server.add_tool(nothing, name="drop")
    assert server.remove_tool("drop").name == "drop"
    server.add_tool(nothing, name="drop")
    assert names(connect(server)) == ["read", "write", "drop"]
    server.enable(tags=["beta"])
    assert names(connect(server)) == ["read", "write", "new", "drop"]


async def test_clients_are_told_once_of_each_change_and_of_nothing_else(autojump_clock):
    server = tagged()
    async with open_bus(server) as bus, bus.connect() as client, client.listen(tools=True) as changes:
        before = bus.statistics().emitted
        server.disable(tags=["admin", "beta"])
        server.disable(names=["write"])  # it is already
        server.remove_tool("new")  # nobody saw it
        server.enable(names=["drop"])
        assert bus.statistics().emitted == before + 2
        assert [(await anext(changes))[0] for _ in range(2)] == ["notifications/tools/list_changed"] * 2
        assert [tool["name"] for tool in await client.list_tools()] == ["read", "drop"]
        assert await bus.tools_changed().settled(timeout=1) == {DELIVERED: 1}


def test_a_tool_of_a_session_is_not_hidden_by_one_of_the_server(connect):
    server = tagged()
    features = server.features.overlay()
    features.add_tool(nothing, name="read", title="own")
    server.disable(names=["read"])
    assert features.find_tool("read", None).title == "own"
    assert features.find_tool("write", None) is not None


def test_tags_tell_who_sees_what(connect):
    server = tagged(visible=lambda principal, tool: principal == "root" or "admin" not in tool.tags)
    assert names(connect(server, principal="ada")) == ["read", "new"]
    assert names(connect(server, principal="root")) == ["read", "write", "drop", "new"]
    assert tool(nothing, tags=["a", "a"]).tags == {"a"}
    assert "tags" not in str(connect(server, principal="ada").tool("new"))


@pytest.mark.parametrize("method", ["enable", "disable"])
@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({}, "does not say which tools: write names=[...] or tags=[...]"),
        ({"names": "read"}, "names is a list: write names=[...]"),
        ({"tags": "beta"}, "tags is a list: write tags=[...]"),
        ({"names": ["red"]}, "tool 'red' is not registered here; there is read, write, drop, new"),
        ({"tags": ["bets"]}, "no tool has the tag 'bets'; there is admin, beta"),
    ],
)
def test_a_mistake_changes_nothing_and_says_what_to_write(connect, method, chosen, sentence):
    server = tagged()
    with pytest.raises((TypeError, RegistrationError)) as refused:
        getattr(server, method)(**chosen)
    assert sentence in str(refused.value)
    assert names(connect(server)) == ["read", "write", "drop", "new"]


def test_one_tag_is_no_list(server):
    with pytest.raises(TypeError, match="tags is a list: write tags="):
        server.add_tool(nothing, tags="admin")


async def read() -> str:
    return "own"


def own(features):
    return [entry.key for entry in features.tools.entries()]


async def test_a_session_hides_tools_from_its_client_alone(autojump_clock):
    server = tagged()
    async with (
        open_bus(server) as bus,
        bus.connect(revision=LEGACY) as other,
        bus.connect(revision=LEGACY) as client,
    ):
        session = [*bus.sessions.values()][-1]
        before = bus.statistics().emitted
        session.disable(tags=["admin"])
        session.disable(names=["write"])  # it is already
        assert bus.statistics().emitted == before + 1  # its client is told, and no other
        assert [tool["name"] for tool in await client.list_tools()] == ["read", "new"]
        with pytest.raises(ProtocolError, match="unknown tool 'write'"):
            await client.call_tool("write")
        assert [tool["name"] for tool in await other.list_tools()] == ["read", "write", "drop", "new"]
        assert (await other.call_tool("write"))["content"][0]["text"] == "nothing"
        before = bus.statistics().emitted
        session.enable(names=["write"])
        assert bus.statistics().emitted == before + 1
        assert [tool["name"] for tool in await client.list_tools()] == ["read", "write", "new"]


async def test_what_a_session_hides_while_it_registers_is_never_offered(autojump_clock):
    server = tagged()

    @server.on_session
    async def hide(session):
        session.disable(tags=["admin", "beta"])

    async with open_bus(server) as bus, bus.connect(revision=LEGACY) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["read"]
        await wait_until_idle(bus)
        assert bus.statistics().emitted == 2  # the answers to initialize and to tools/list


def test_what_the_server_hides_stays_hidden_and_what_a_session_has_of_its_own_is_hidden_too():
    server = tagged()
    features = server.features.overlay()
    features.add_tool(read, tags=["mine"])
    server.disable(tags=["admin"])
    features.enable_tools(["write"], None)
    assert own(features) == ["new", "read"]
    features.disable_tools(None, ["mine"])
    assert own(features) == ["new"]  # nor the server's of the same name
    assert features.find_tool("read", None) is None
    features.enable_tools(None, ["mine"])
    features.disable_tools(["write"], None)
    server.enable(tags=["admin"])
    assert own(features) == ["drop", "new", "read"]
    features.enable_tools(["write"], None)
    assert own(features) == ["write", "drop", "new", "read"]
    features.disable_tools(["read"], None)
    features.remove_tool("read")
    assert own(features) == ["write", "drop", "new"]  # by the name, whose tool it was
    features.enable_tools(["read"], None)
    assert own(features) == ["read", "write", "drop", "new"]
    features.disable_tools(["new"], None)
    assert features.add_tool(nothing, name="new", title="own") is features.find_tool("new", None)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({}, "session.disable() does not say which tools: write names=[...] or tags=[...]"),
        ({"names": ["red"]}, "tool 'red' is not registered here; there is read, write, drop, new, own"),
        ({"tags": ["bets"]}, "no tool has the tag 'bets'; there is admin, beta, mine"),
    ],
)
def test_a_mistake_in_a_session_says_what_to_write(chosen, sentence):
    features = tagged().features.overlay()
    features.add_tool(nothing, name="own", tags=["mine"])
    with pytest.raises((TypeError, RegistrationError)) as refused:
        features.disable_tools(chosen.get("names"), chosen.get("tags"))
    assert str(refused.value) == sentence
