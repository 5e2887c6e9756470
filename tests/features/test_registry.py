"""Names, order, pages, overlays, and what is kept until a change."""

import pytest
import trio

from mcpbus.features.catalogue import FeatureSet
from mcpbus.features.errors import RegistrationError
from mcpbus.protocol.errors import INVALID_PARAMS, ProtocolError
from mcpbus.server import Server


def nothing() -> None: ...


def names(client, **params):
    return [tool["name"] for tool in client.ask("tools/list", **params)["tools"]]


def filled(*tool_names: str, **options) -> Server:
    server = Server("s", **options)
    for name in tool_names:
        server.add_tool(nothing, name=name)
    return server


def test_a_name_is_taken_once(server):  # F-11
    server.add_tool(nothing)
    with pytest.raises(RegistrationError, match="tool 'nothing' is registered already"):
        server.add_tool(nothing)
    server.remove_tool("nothing")
    server.add_tool(nothing)
    with pytest.raises(RegistrationError, match="'other' is not registered here; there is nothing"):
        server.remove_tool("other")


def test_the_order_is_that_of_registration(connect):  # M-10
    server = filled("b", "a", "c")
    server.remove_tool("b")
    server.add_tool(nothing, name="b")
    assert names(connect(server)) == ["a", "c", "b"]


@pytest.mark.parametrize(
    "method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
)
def test_pages_join_to_the_whole_list(connect, method):  # I-1, I-5
    server = Server("s", page_size=2)
    for n in range(5):
        server.add_tool(nothing, name=f"t{n}")
        server.add_prompt(nothing, name=f"t{n}")
        server.add_resource(f"x://t{n}", nothing, name=f"t{n}")
        server.add_resource(f"y://t{n}/{{a}}", lambda a: a, name=f"t{n}")
    client, found, sizes, cursor = connect(server), [], [], {}
    for _ in range(5):
        page = client.ask(method, **cursor)
        (items,) = (value for value in page.values() if isinstance(value, list))
        found += [item["name"] for item in items]
        sizes.append(len(items))
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert (found, sizes) == ([f"t{n}" for n in range(5)], [2, 2, 1])


def test_a_change_between_two_pages_neither_repeats_nor_hides(connect):
    server = filled("a", "b", "c", "d", page_size=2)
    client = connect(server)
    cursor = client.ask("tools/list")["nextCursor"]
    server.remove_tool("a")
    server.add_tool(nothing, name="e")
    assert names(client, cursor=cursor) == ["c", "d"]


@pytest.mark.parametrize("cursor", ["", "x", "W10"])
def test_a_cursor_of_nowhere_is_refused(connect, cursor):
    with pytest.raises(ProtocolError) as refused:
        connect(filled("a")).ask("tools/list", cursor=cursor)
    assert refused.value.code == INVALID_PARAMS


def test_a_cursor_of_another_list_is_refused(connect):
    server = filled("a", "b", page_size=1)
    server.add_prompt(nothing)
    client = connect(server)
    with pytest.raises(ProtocolError):
        client.ask("prompts/list", cursor=client.ask("tools/list")["nextCursor"])


def test_a_list_is_encoded_once_for_each_revision_until_it_changes(connect):
    server = filled("a")
    modern, legacy = connect(server), connect(server, "2024-11-05")
    first = modern.ask_raw("tools/list")
    assert modern.ask_raw("tools/list") is first
    assert legacy.ask_raw("tools/list") is not first
    assert modern.ask_raw("tools/list") is first
    server.add_tool(nothing, name="b")
    assert names(modern) == ["a", "b"]
    assert names(legacy) == ["a", "b"]


def test_what_is_kept_is_bounded(connect):
    server = filled("a", visible=lambda principal, tool: True)
    for n in range(600):
        server.add_tool(nothing, name=f"t{n}", visible=lambda principal, tool, n=n: principal == n)
    for principal in range(600):
        assert names(connect(server, principal=principal)) == ["a", f"t{principal}"]
    assert len(server.features.tools._kept) <= 256


def test_changes_are_told_until_nobody_listens(server):
    told = []
    unlisten = server.features.on_change(told.append)
    server.add_tool(nothing)
    server.add_prompt(nothing)
    server.add_resource("x://a", nothing)
    server.add_resource("x://{a}", lambda a: a)
    server.remove_tool("nothing")
    server.remove_prompt("nothing")
    server.remove_resource("x://a")
    server.remove_resource("x://{a}")
    assert told == ["tools", "prompts", "resources", "resources"] * 2
    unlisten()
    server.add_tool(nothing)
    assert len(told) == 8


def test_a_session_has_tools_of_its_own_over_the_servers(connect):
    server = filled("a", "b")
    own = server.features.overlay()
    other = connect(server)
    session = connect(server, features=own)
    told = []
    own.on_change(told.append)
    mine = own.add_tool(nothing, name="a", description="mine")
    own.add_tool(nothing, name="c")
    server.add_tool(nothing, name="d")
    assert told == ["tools", "tools"]
    assert (names(session), names(other)) == (["b", "a", "c", "d"], ["a", "b", "d"])
    assert own.find_tool("a", None) is mine
    assert session.tool("a")["description"] == "mine"
    assert "description" not in other.tool("a")
    assert other.server.features.find_tool("c", None) is None
    own.remove_tool("a")
    assert names(session) == ["a", "b", "c", "d"]
    with pytest.raises(RegistrationError, match="not registered here"):
        own.remove_tool("b")


def test_a_session_without_tools_of_its_own_shares_what_its_server_encoded(connect):
    server = filled("a")
    shared = connect(server).ask_raw("tools/list")
    own = connect(server, features=server.features.overlay())
    assert own.ask_raw("tools/list") is shared


async def test_who_may_not_see_a_tool_can_neither_list_nor_call_it(connect):
    server = filled("all", visible=lambda principal, tool: principal != "nobody")
    server.add_tool(nothing, name="admin", visible=lambda principal, tool: principal == "admin")
    seen = {
        principal: names(connect(server, principal=principal)) for principal in ("admin", "user", "nobody")
    }
    assert seen == {"admin": ["all", "admin"], "user": ["all"], "nobody": []}
    assert await connect(server, principal="admin").call("admin")
    with pytest.raises(ProtocolError, match="unknown tool 'admin'"):
        await connect(server, principal="user").call("admin")


def test_a_predicate_that_fails_hides(connect, caplog):
    server = filled("a")
    server.add_tool(nothing, name="b", visible=lambda principal, tool: principal.admin)
    assert names(connect(server)) == ["a"]
    assert "visible= failed for tool b" in caplog.text


@pytest.mark.parametrize(
    ("options", "scope"),
    [({}, "public"), ({"visible": lambda p, t: True}, "private"), ({"authenticate": trio.sleep}, "private")],
)
def test_a_list_that_depends_on_who_asks_is_private(connect, options, scope):  # K-5
    listed = connect(filled("a", list_ttl=2, **options)).ask("tools/list")
    assert (listed["cacheScope"], listed["ttlMs"]) == (scope, 2000)


def test_all_pages_of_a_list_may_be_kept_by_the_same_whatever_becomes_of_another_list(connect):  # K-3
    server = Server("s", page_size=1)
    for name in "ab":
        server.add_prompt(nothing, name=name)
    client = connect(server)
    first = client.ask("prompts/list")
    server.add_tool(nothing, visible=lambda *_: True)
    again, second = client.ask("prompts/list"), client.ask("prompts/list", cursor=first["nextCursor"])
    assert [page["cacheScope"] for page in (first, again, second)] == ["public"] * 3
    assert client.ask("tools/list")["cacheScope"] == "private"


def test_a_tool_may_be_made_before_it_is_added(server):
    from mcpbus.features.tool import tool

    made = tool(nothing, name="t")
    assert server.add_tool(made) is made
    with pytest.raises(RegistrationError, match="is made already; give title where"):
        server.add_tool(made, title="T")


def test_features_offer_what_was_ever_registered():
    features = FeatureSet(declared=frozenset({"tools"}))
    assert [features.offers(kind) for kind in ("tools", "prompts", "resources", "completions")] == [True] + [
        False
    ] * 3
    features.add_prompt(lambda a: a, name="p")
    features.add_completer("p", "a", lambda value: [], thread=True, timeout=None)
    features.remove_prompt("p")
    features.add_resource("x://{a}", lambda a: a)
    assert all(features.offers(kind) for kind in ("prompts", "resources", "completions"))
    assert features.overlay().offers("completions")
