"""Several servers behind one: whose is what, under which names."""

from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from scripted import Scripted, in_a_second, initialize
from trio.testing import wait_all_tasks_blocked
from upstreams import NEW, OLD, proxy_of, upstream, weather

from mcpbus import Context, PromptResult, ProtocolError, ResourceNotFoundError, Server, ToolResult
from mcpbus.testing import open_bus, open_client
from mcpbus.upstream.errors import UpstreamError

BOTH = pytest.mark.parametrize("here", [OLD, NEW])


@asynccontextmanager
async def desk(*servers, there=NEW, **options):
    """A server in which proxies of others are mounted, by name."""
    async with AsyncExitStack() as stack:
        made, reached = Server("desk", **options), {}
        for name, server in servers:
            reached[name] = await stack.enter_async_context(upstream(server, there))
            reached[name].lists_templates = not hasattr(server, "read")
            made.mount(proxy_of(reached[name]), prefix=name)
        yield made, reached


async def test_servers_are_connected_to_at_once_and_all_are_there_at_the_start(autojump_clock):
    async with upstream(weather()) as one, upstream(weather()) as other:
        one.slow, other.slow = 25, 20
        server = Server("desk")
        server.mount(proxy_of(one), prefix="one")
        server.mount(proxy_of(other), prefix="other")
        begun = trio.current_time()
        async with open_client(server) as client:
            assert 25 <= trio.current_time() - begun < 30
            names = {tool["name"] for tool in await client.list_tools()}
    assert {"one_forecast", "other_forecast"} <= names


async def test_of_several_servers_the_one_that_cannot_be_reached_is_told(autojump_clock):
    async with upstream(weather()) as one, upstream(weather()) as other:
        one.slow, other.down = 20, "it is down"
        server = Server("desk")
        server.mount(proxy_of(one, name="one"), prefix="one")
        server.mount(proxy_of(other, name="other"), prefix="other")
        with pytest.raises(UpstreamError, match="other cannot be reached: it is down"):
            async with open_client(server):
                pytest.fail("it is open")


def books(scheme="book", known=("1", "2")):
    server = Server("books")

    @server.resource(f"{scheme}://list", name="list")
    async def listed() -> list[str]:
        return list(known)

    @server.resource(f"{scheme}://{{number}}", name="one")
    async def one(number: str) -> str:
        if number not in known:
            raise ResourceNotFoundError
        return f"{scheme} {number}"

    @server.tool
    async def find(ctx: Context) -> str:
        return scheme

    return server


@BOTH
async def test_names_have_a_prefix_and_uris_have_none(here, autojump_clock):
    async with (
        desk(("sky", weather()), ("books", books())) as (server, _),
        open_client(server, revision=here) as client,
    ):
        assert {tool["name"] for tool in await client.list_tools()} >= {
            "sky_forecast",
            "sky_ask",
            "books_find",
        }
        assert [prompt["name"] for prompt in await client.list_prompts()] == ["sky_pack"]
        assert [each["uri"] for each in await client.list_resources()] == ["data://cities", "book://list"]
        assert [each["uriTemplate"] for each in await client.list_resource_templates()] == [
            "data://{city}/now",
            "book://{number}",
        ]
        assert (await client.call_tool("books_find"))["content"][0]["text"] == "book"
        assert (await client.read_resource("book://2"))[0]["text"] == "book 2"
        assert (await client.read_resource("data://Oslo/now"))[0]["text"] == "Oslo: rain"
        assert (await client.get_prompt("sky_pack", {"city": "Oslo"}))[0]["content"][
            "text"
        ] == "Pack for 3 days in Oslo"
        completed = await client.request(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "sky_pack"}, "argument": {"name": "city", "value": "O"}},
        )
        assert completed["completion"]["values"] == ["Oslo for None"]


async def test_a_uri_that_two_servers_have_is_that_of_the_first_and_the_log_says_so(autojump_clock, caplog):
    async with desk(("a", books()), ("b", books(known=("9",)))) as (server, _), open_client(server) as client:
        assert (await client.read_resource("book://list"))[0]["text"] == '["1","2"]'
        assert (await client.read_resource("book://1"))[0]["text"] == "book 1"
    assert caplog.text.count("resource 'book://list' is registered already") == 1


def unlisting(known, scheme, refusal=ResourceNotFoundError):
    """A server that reads what it does not list."""
    server = Server("unlisting", capabilities=("resources", "tools"))
    server.read = []

    @server.resource(f"{scheme}://listed", name="listed")
    async def listed() -> str:
        return "listed"

    @server.resource("ui://{name}", name="any")
    async def anything(name: str) -> str:
        server.read.append(name)
        if name not in known:
            raise refusal
        return known[name]

    return server


async def test_what_is_in_no_list_is_asked_of_each_server_that_has_such_uris_until_one_knows_it(
    autojump_clock,
):
    a, b, c = unlisting({}, "ui"), unlisting({"b": "of b"}, "ui"), unlisting({"b": "of c"}, "db")
    async with desk(("a", a), ("b", b), ("c", c)) as (server, _), open_client(server) as client:
        assert (await client.read_resource("ui://b"))[0]["text"] == "of b"
        with pytest.raises(ProtocolError, match="Resource not found: 'ui://nowhere'") as raised:
            await client.read_resource("ui://nowhere")
        assert raised.value.code == -32602
        with pytest.raises(ProtocolError, match="Resource not found"):
            await client.read_resource("other://b")
    assert (a.read, b.read, c.read) == (["b", "nowhere"], ["b", "nowhere"], [])


async def test_a_server_that_fails_to_read_is_not_passed_over(autojump_clock):
    a, b = unlisting({}, "ui", refusal=ZeroDivisionError), unlisting({"b": "of b"}, "ui")
    async with desk(("a", a), ("b", b)) as (server, _), open_client(server) as client:
        with pytest.raises(ProtocolError) as raised:
            await client.read_resource("ui://b")
    assert raised.value.code == -32603
    assert b.read == []


async def test_a_user_interface_that_a_tool_names_may_be_read_though_it_is_not_listed(autojump_clock):
    server = unlisting({"view": "<html>"}, "data")
    server.add_tool(lambda: "x", name="a", meta={"ui": {"resourceUri": "ui://view"}})
    other = Server("other")
    other.resource("x://y")(lambda: "z")
    async with desk(("other", other), ("a", server)) as (made, _), open_client(made) as client:
        assert (await client.read_resource("ui://view"))[0]["text"] == "<html>"


async def test_middleware_wraps_what_is_passed_on_and_sees_what_a_tool_would_return(autojump_clock):
    seen = []

    async def watch(invocation, call_next):
        value = await call_next(invocation)
        seen.append((invocation.method, invocation.name, invocation.arguments, type(value)))
        return value

    async with desk(("sky", weather()), middleware=[watch]) as (server, _), open_client(server) as client:
        await client.call_tool("sky_forecast", {"city": "Oslo"})
        await client.read_resource("data://Oslo/now")
        await client.get_prompt("sky_pack", {"city": "Oslo"})
    assert seen == [
        ("tools/call", "sky_forecast", {"arguments": {"city": "Oslo"}}, ToolResult),
        ("resources/read", "data://Oslo/now", {"uri": "data://Oslo/now"}, list),
        ("prompts/get", "sky_pack", {"arguments": {"city": "Oslo"}}, PromptResult),
    ]


async def test_tools_of_others_can_be_hidden_and_shown_by_principal(autojump_clock):
    def visible(principal, tool):
        return principal == "ada" or not tool.name.startswith("sky_")

    async with (
        desk(("sky", weather()), ("books", books()), visible=visible) as (server, _),
        open_bus(server) as bus,
        bus.connect(principal="ada") as ada,
        bus.connect(principal="bob") as bob,
    ):
        assert len(await ada.list_tools()) == 8
        assert [tool["name"] for tool in await bob.list_tools()] == ["books_find"]
        with pytest.raises(ProtocolError, match="unknown tool"):
            await bob.call_tool("sky_forecast", {"city": "Oslo"})
        server.disable(names=["books_find"])
        assert await bob.list_tools() == []


@BOTH
async def test_changes_and_updates_come_through_servers_that_are_mounted_in_mounted_ones(
    here, autojump_clock
):
    below = weather()
    async with desk(("sky", below)) as (server, reached):
        top = Server("top")
        top.mount(server, prefix="desk")
        async with open_client(top, revision=here) as client:
            assert [each["uri"] for each in await client.list_resources()] == ["data://desk/cities"]
            assert (await client.read_resource("data://desk/Oslo/now"))[0]["text"] == "Oslo: rain"
            assert (await client.call_tool("desk_sky_meta"))["content"]
            async with client.listen(
                tools=True, uris=["data://desk/cities", "data://desk/Oslo/now"]
            ) as changes:
                await trio.sleep(1)
                assert sorted(reached["sky"].bus.topics.uris) == ["data://Oslo/now", "data://cities"]
                reached["sky"].bus.resource_updated("data://cities")
                reached["sky"].bus.resource_updated("data://Oslo/now")
                below.remove_tool("who")
                said = [await anext(changes) for _ in range(3)]
    assert {(method, params.get("uri")) for method, params in said} == {
        ("notifications/resources/updated", "data://desk/cities"),
        ("notifications/resources/updated", "data://desk/Oslo/now"),
        ("notifications/tools/list_changed", None),
    }


async def test_all_mounted_servers_hear_what_a_client_tells(autojump_clock):
    told = []
    top = Server("top")
    for name in ("a", "b"):
        below = Server(name)

        @below.on_notification("notifications/acme")
        async def hear(_said, name=name):
            told.append(name)

        top.mount(below, prefix=name)
    async with open_client(top) as client:
        await client.notify("notifications/acme")
        await wait_all_tasks_blocked()
    assert sorted(told) == ["a", "b"]


async def test_a_proxy_that_is_open_in_one_server_is_not_opened_in_another_one(autojump_clock):
    async with upstream(weather(), OLD) as reached:
        proxy = proxy_of(reached)
        one, other = Server("one"), Server("other")
        one.mount(proxy, prefix="a")
        other.mount(proxy, prefix="b")
        async with open_client(one, revision=OLD) as client:
            with pytest.raises(RuntimeError, match="proxy 'upstream' is open in another server already"):
                async with open_bus(other):
                    pass
            assert (await client.call_tool("a_count"))["content"][0]["text"] == "1"
        async with open_client(other, revision=OLD) as client:
            assert (await client.call_tool("b_count"))["content"][0]["text"] == "1"
        assert reached.connected == 0


async def test_servers_that_need_not_be_there_are_waited_for_at_the_same_time(autojump_clock):
    def nothing(_wire, _request, _params):
        """Leave it unanswered."""

    desk = Server("desk")
    desk.mount(Scripted(OLD, initialize=in_a_second(initialize)).proxy(optional=True), prefix="slow")
    for number in range(5):
        desk.mount(Scripted(OLD, tools_list=nothing).proxy(optional=True), prefix=f"silent{number}")
    began = trio.current_time()
    async with open_client(desk) as client:
        assert trio.current_time() - began == pytest.approx(30)
        assert [tool["name"] for tool in await client.list_tools()] == ["slow_t"]
