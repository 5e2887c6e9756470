"""Which tools of an upstream server a proxy offers: what is left out is neither listed nor called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upstreams import NEW, OLD, proxy_of, upstream, weather

from mcpbus import ProtocolError, Proxy, Server
from mcpbus.testing import open_client
from mcpbus.upstream.tool_filter import ToolFilter

NAMES = st.text("abc_.-", min_size=1, max_size=6)
PLAIN = st.text("abc.-", min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("only", "without", "allowed"),
    [
        (None, (), {"read", "read_all", "write"}),
        (("*",), (), {"read", "read_all", "write"}),
        ((), (), set()),
        (("read",), (), {"read"}),
        (("read*",), (), {"read", "read_all"}),
        (("*a*",), (), {"read", "read_all"}),
        (("READ", "rea.", "rea?", "[a-z]*"), (), set()),
        (None, ("read",), {"read_all", "write"}),
        (None, ("*",), set()),
        (("read*",), ("*_all",), {"read"}),
        (("read",), ("read",), set()),
    ],
)
def test_a_tool_has_to_match_the_one_list_and_not_the_other(only, without, allowed):
    found = ToolFilter(only, without)
    assert {name for name in ("read", "read_all", "write") if found.allows(name)} == allowed


@given(st.lists(NAMES), st.lists(NAMES), NAMES)
def test_names_without_a_star_are_compared_to_the_letter(only, without, name):
    assert ToolFilter(tuple(only), tuple(without)).allows(name) is (name in only and name not in without)
    assert ToolFilter(None, tuple(without)).allows(name) is (name not in without)


@given(st.lists(PLAIN), st.lists(PLAIN))
def test_what_matches_no_tool_is_found(patterns, names):
    assert ToolFilter(None, tuple(patterns)).idle(names) == [
        each for each in dict.fromkeys(patterns) if each not in names
    ]


def test_a_pattern_with_a_prefix_stands_for_its_rest():
    assert ToolFilter(None, ("files_read", "read")).idle(["read"]) == []
    assert ToolFilter(None, ("files_read", "read")).idle(["write"]) == ["read"]
    assert ToolFilter(None, ("files_read",)).idle(["read"]) == ["files_read"]


@pytest.mark.parametrize("here", [OLD, NEW])
@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("mounted", [False, True])
async def test_a_tool_that_is_left_out_is_neither_listed_nor_called(mounted, here, there, autojump_clock):
    async with upstream(weather(), there) as reached:
        proxy = proxy_of(reached, include_tools=["forecast", "h*", "who"], exclude_tools=["hang"])
        server = proxy
        if mounted:
            server = Server("desk")
            server.mount(proxy, prefix="sky")
        prefix = "sky_" if mounted else ""
        async with open_client(server, revision=here) as client:
            tools = [tool["name"] for tool in await client.list_tools()]
            assert sorted(tools) == [f"{prefix}forecast", f"{prefix}who"]
            for name in ("hang", "count"):
                with pytest.raises(ProtocolError, match="unknown tool"):
                    await client.call_tool(f"{prefix}{name}")
            result = await client.call_tool(f"{prefix}forecast", {"city": "Oslo"})
            assert "rain" in result["content"][0]["text"]


async def test_a_tool_that_is_left_out_is_not_called_by_whatever_way(autojump_clock):
    """A call that is passed on without a look at the list, as for a tool that is in none, is refused, too."""
    async with upstream(weather()) as reached:
        proxy = proxy_of(reached, exclude_tools=["who"])
        async with open_client(proxy) as client:
            relay = proxy.connection._mirror._relay
            with pytest.raises(ProtocolError, match="unknown tool 'who'"):
                await relay.call_tool("who", arguments={}, ctx=None)
            assert "who" not in [tool["name"] for tool in await client.list_tools()]


async def test_a_tool_that_comes_later_is_left_out_too(autojump_clock):
    there = weather()
    async with (
        upstream(there) as reached,
        open_client(proxy_of(reached, exclude_tools=["late*"])) as client,
    ):
        async with client.listen(tools=True) as changes:
            there.add_tool(lambda: "no", name="late")
            there.add_tool(lambda: "yes", name="early")
            await anext(changes)
        names = {tool["name"] for tool in await client.list_tools()}
    assert "early" in names
    assert "late" not in names


async def test_a_pattern_that_no_tool_matches_is_named_once(autojump_clock, caplog):
    there = weather()
    async with (
        upstream(there) as reached,
        open_client(proxy_of(reached, name="sky", exclude_tools=["hagn", "who", "w*"])) as client,
        client.listen(tools=True) as changes,
    ):
        there.add_tool(lambda: "yes", name="early")
        await anext(changes)
    assert caplog.text.count("sky has no tool 'hagn', which a list of its tools names") == 1
    assert "'who'" not in caplog.text


@pytest.mark.parametrize("option", ["include_tools", "exclude_tools"])
@pytest.mark.parametrize("value", ["read", 5, [1]])
def test_what_is_no_list_of_names_is_refused(option, value):
    with pytest.raises(TypeError, match=f"Proxy: {option} "):
        Proxy(["x"], **{option: value})


@pytest.mark.parametrize("there", [OLD, NEW])
async def test_a_tool_that_one_client_alone_has_is_left_out_too(there, autojump_clock):
    server = weather()

    @server.on_session
    async def add(session):
        session.add_tool(lambda: "mine", name="own")
        session.add_tool(lambda: "secret", name="own_secret")

    async with upstream(server, there) as reached:
        proxy = proxy_of(reached, negotiates=True, exclude_tools=["*secret"])
        async with open_client(proxy, revision=OLD) as client:
            await client.call_tool("forecast", {"city": "Oslo"})
            names = {tool["name"] for tool in await client.list_tools()}
            assert "own" in names
            assert "own_secret" not in names
            with pytest.raises(ProtocolError, match="unknown tool"):
                await client.call_tool("own_secret")
