"""One server within another: what is offered under which names, what goes with it, and what follows."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
import trio

from mcpbus import (
    DELIVERED,
    Context,
    Depends,
    ProtocolError,
    RegistrationError,
    ResourceNotFoundError,
    Server,
    SyncContext,
)
from mcpbus.testing import open_bus, open_client, wait_until_idle


def holding(state):
    @asynccontextmanager
    async def lifespan(server):
        yield state

    return lifespan


def weather(**options):
    server = Server("weather", **options)

    @server.tool
    async def now(city: str, ctx: Context) -> str:
        return f"{city}: {ctx.state}"

    @server.resource("data://cities")
    async def cities() -> str:
        return "Oslo"

    @server.resource("data://{city}/now")
    def in_city(city: str, ctx: SyncContext) -> str:
        if city == "Atlantis":
            raise ResourceNotFoundError("it sank")
        return f"{city}: {ctx.state}"

    @server.prompt
    async def pack(city: str) -> str:
        return f"Pack for {city}"

    @server.completion("pack", "city")
    async def complete(typed: str) -> list[str]:
        return ["Oslo"]

    @server.completion("data://{city}/now", "city")
    async def complete_uri(typed: str) -> list[str]:
        return ["Bergen"]

    return server


async def names(client, kind, field="name"):
    answer = await client.request(f"{kind}/list")
    key = {"resources/templates": "resourceTemplates"}.get(kind, kind)
    return [item[field] for item in answer[key]]


async def text(client, tool, **arguments):
    return (await client.call_tool(tool, arguments))["content"][0]["text"]


async def read(client, uri):
    (contents,) = (await client.request("resources/read", {"uri": uri}))["contents"]
    assert contents["uri"] == uri
    return contents["text"]


async def completed(client, kind, ref):
    argument = {"name": "city", "value": ""}
    answer = await client.request("completion/complete", {"ref": ref | {"type": kind}, "argument": argument})
    return answer["completion"]["values"]


@pytest.mark.parametrize("prefix", ["w", None])
async def test_all_is_offered_under_the_prefix(prefix, autojump_clock):
    main = Server("main", lifespan=holding("main"))
    main.mount(weather(lifespan=holding("sun")), prefix=prefix)
    name, uri = ("w_", "data://w/") if prefix else ("", "data://")
    async with open_client(main) as client:
        assert await names(client, "tools") == [f"{name}now"]
        assert await names(client, "prompts") == [f"{name}pack"]
        assert await names(client, "resources", "uri") == [f"{uri}cities"]
        assert await names(client, "resources/templates", "uriTemplate") == [uri + "{city}/now"]
        assert await text(client, f"{name}now", city="Oslo") == "Oslo: sun"
        assert await read(client, f"{uri}cities") == "Oslo"
        assert await read(client, f"{uri}Oslo/now") == "Oslo: sun"
        got = await client.request("prompts/get", {"name": f"{name}pack", "arguments": {"city": "Oslo"}})
        assert got["messages"][0]["content"]["text"] == "Pack for Oslo"
        assert await completed(client, "ref/prompt", {"name": f"{name}pack"}) == ["Oslo"]
        assert await completed(client, "ref/resource", {"uri": uri + "{city}/now"}) == ["Bergen"]
        with pytest.raises(ProtocolError, match=f"'{uri}Atlantis/now': it sank"):
            await read(client, f"{uri}Atlantis/now")
        if prefix:
            with pytest.raises(ProtocolError, match="unknown tool 'now'"):
                await client.call_tool("now", {"city": "Oslo"})


async def test_each_server_has_a_state_of_its_own_however_deep(autojump_clock):
    entered = []

    def noting(name):
        @asynccontextmanager
        async def lifespan(server):
            entered.append(name)
            yield name
            entered.append(f"no {name}")

        return lifespan

    async def state(ctx: Context) -> str:
        return ctx.state

    async def shared(ctx: Context) -> str:
        return ctx.state

    async def depending(state: str = Depends(shared)) -> str:
        return state

    servers = [Server(name, lifespan=noting(name)) for name in ("a", "b", "c")]
    for server in servers:
        server.add_tool(state)
        server.add_tool(depending)
    servers[1].mount(servers[2], prefix="c")
    servers[0].mount(servers[1], prefix="b")
    async with open_client(servers[0]) as client:
        assert await names(client, "tools") == [
            f"{prefix}{name}" for prefix in ("", "b_", "b_c_") for name in ("state", "depending")
        ]
        for prefix, name in {"": "a", "b_": "b", "b_c_": "c"}.items():
            assert await text(client, f"{prefix}state") == name
            assert await text(client, f"{prefix}depending") == name
    assert entered == ["a", "b", "c", "no c", "no b", "no a"]


async def test_middleware_is_around_its_own_servers_calls_within_that_of_the_server_above(autojump_clock):
    log = []

    def noting(who):
        async def middleware(invocation, call_next):
            log.append(
                (who, invocation.name, getattr(invocation.tool, "name", None), invocation.context.state)
            )
            return await call_next(invocation)

        return middleware

    below = weather(middleware=[noting("first"), noting("second")], lifespan=holding("sun"))
    main = Server("main", middleware=[noting("main")], lifespan=holding("all"))
    main.mount(below, prefix="w")

    @main.tool
    async def own() -> None: ...

    async with open_client(main) as client:
        await client.call_tool("own")
        assert log == [("main", "own", "own", "all")]
        log.clear()
        await client.call_tool("w_now", {"city": "Oslo"})
        assert log == [
            ("main", "w_now", "w_now", "all"),
            ("first", "now", "now", "sun"),
            ("second", "now", "now", "sun"),
        ]
        log.clear()
        await read(client, "data://w/Oslo/now")
        assert log == [
            ("main", "data://w/Oslo/now", None, "all"),
            ("first", "data://Oslo/now", None, "sun"),
            ("second", "data://Oslo/now", None, "sun"),
        ]


async def test_what_changes_later_is_followed_and_told_once(autojump_clock):
    below, main = weather(), Server("main")
    main.mount(below, prefix="w")
    async with open_bus(main) as bus, bus.connect() as client:
        async with client.listen(tools=True, prompts=True, resources=True) as changes:
            below.add_tool(lambda: None, name="new", tags=["beta"])
            below.add_tool(lambda: None, name="other", tags=["beta"])
            assert [(await anext(changes))[0] for _ in range(2)] == ["notifications/tools/list_changed"] * 2
            assert await names(client, "tools") == ["w_now", "w_new", "w_other"]
            before = bus.statistics().emitted
            below.disable(tags=["beta"])
            assert bus.statistics().emitted == before + 1
            assert await names(client, "tools") == ["w_now"]
            below.enable(names=["other"])
            below.remove_tool("now")
            assert await names(client, "tools") == ["w_other"]
            below.remove_prompt("pack")
            below.remove_resource("data://cities")
            below.remove_resource("data://{city}/now")
            assert await names(client, "prompts") == []
            assert await names(client, "resources") == await names(client, "resources/templates") == []
        with pytest.raises(ProtocolError, match="unknown prompt"):
            await completed(client, "ref/prompt", {"name": "w_pack"})


async def test_a_completion_that_is_registered_later_completes(autojump_clock):
    below, main = Server("below"), Server("main")
    main.mount(below, prefix="b")

    @below.prompt
    async def greet(city: str) -> str: ...

    @below.completion("greet", "city")
    async def complete(typed: str) -> list[str]:
        return ["Oslo"]

    async with open_client(main) as client:
        assert await completed(client, "ref/prompt", {"name": "b_greet"}) == ["Oslo"]


async def test_a_tool_that_is_replaced_below_is_replaced(autojump_clock):
    below, main = Server("below"), Server("main")
    below.add_tool(lambda: "old", name="tell", thread=False)
    main.mount(below)
    below.remove_tool("tell")
    below.add_tool(lambda: "new", name="tell", thread=False)
    async with open_client(main) as client:
        assert await text(client, "tell") == "new"


async def test_the_server_above_may_hide_or_remove_what_it_has_mounted(autojump_clock):
    below, main = weather(), Server("main")
    main.mount(below, prefix="w")
    main.disable(names=["w_now"])
    below.add_tool(lambda: None, name="new")
    assert [entry.key for entry in main.features.tools.entries()] == ["w_new"]
    main.remove_tool("w_new")
    below.remove_tool("now")
    below.add_tool(lambda: None, name="newer")
    assert [entry.key for entry in main.features.tools.entries()] == ["w_newer"]


async def test_what_it_pushes_reaches_the_clients_of_the_server_above(autojump_clock):
    below, middle, main = weather(), Server("middle"), Server("main", capabilities=["prompts"])
    middle.mount(below, prefix="w")
    main.mount(middle, prefix="m")
    with pytest.raises(RuntimeError, match="server 'weather' has nobody to tell: it is not open"):
        below.tools_changed()
    async with open_bus(main) as bus, bus.connect() as client:
        assert below.bus is bus
        listening = {"uris": ["data://m/w/cities"], "tools": True, "prompts": True, "resources": True}
        async with client.listen(**listening) as changes:
            told = [
                below.resource_updated("data://cities"),
                below.tools_changed(),
                below.prompts_changed(),
                below.resources_changed(),
            ]
            methods = [await anext(changes) for _ in told]
            assert methods[0][1]["uri"] == "data://m/w/cities"
            for broadcast in told:
                assert await broadcast.settled(timeout=1) == {DELIVERED: 1}


async def test_a_task_of_its_lifespan_pushes(autojump_clock):
    @asynccontextmanager
    async def lifespan(server):
        async def push():
            while True:
                server.resource_updated("data://cities")
                await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(push)
            yield "sun"
            nursery.cancel_scope.cancel()

    main = Server("main")
    main.mount(weather(lifespan=lifespan), prefix="w")
    async with open_client(main) as client, client.listen(uris=["data://w/cities"]) as changes:
        assert (await anext(changes))[1]["uri"] == "data://w/cities"


async def test_its_hooks_hold_and_so_does_who_sees_what(autojump_clock):
    log = []
    below = weather(visible=lambda principal, tool: tool.name == "now" and principal == "ada")
    below.add_tool(lambda: None, name="hidden")
    main = Server("main")

    @below.on_session
    async def hello(session):
        log.append("hello")

    @below.on_session_end
    async def bye(session):
        log.append("bye")

    @below.on_notification("notifications/acme")
    async def hear(told):
        log.append(told.method)

    main.mount(below, prefix="w")
    async with open_bus(main) as bus:
        async with bus.connect(revision="2025-11-25", principal="ada") as ada:
            assert await names(ada, "tools") == ["w_now"]
            await ada.notify("notifications/acme")
            await wait_until_idle(bus)
        async with bus.connect(principal="bob") as bob:
            assert await names(bob, "tools") == []
            with pytest.raises(ProtocolError, match="unknown tool"):
                await bob.call_tool("w_now")
        await wait_until_idle(bus)
    assert log == ["hello", "notifications/acme", "bye"]


def test_a_name_that_is_taken_is_refused_before_anything_is_mounted():
    below, main = weather(), Server("main")
    main.add_prompt(lambda: "", name="pack")
    with pytest.raises(RegistrationError, match="prompt 'pack' is registered already"):
        main.mount(below)
    assert len(main.features.tools) == 0
    main.mount(below, prefix="w")


async def test_a_name_that_is_taken_later_is_not_offered_and_the_log_is_told(caplog, autojump_clock):
    below, main = Server("below"), Server("main")
    main.mount(below, prefix="w")
    main.add_tool(lambda: "mine", name="w_now", thread=False)
    below.add_tool(lambda: "theirs", name="now", thread=False)
    below.add_tool(lambda: "long", name="l" * 63, thread=False)
    below.add_tool(lambda: "else", name="else", thread=False)
    async with open_client(main) as client:
        assert await text(client, "w_now") == "mine"
        assert await text(client, "w_else") == "else"
    assert caplog.text.count("is not offered: tool 'w_now' is registered already") == 1
    assert "with its prefix it is no name of 1 to 64 letters" in caplog.text


async def test_a_prompt_that_is_not_offered_leaves_its_namesake_the_completions(autojump_clock):
    below, main = Server("below"), Server("main")
    main.mount(below)

    def add_pack(server, proposed):
        async def pack(city: str) -> str:
            return city

        async def complete(typed: str) -> list[str]:
            return [proposed]

        server.add_prompt(pack)
        server.completion("pack", "city")(complete)

    async with open_client(main) as client:
        add_pack(main, "mine")
        add_pack(below, "theirs")
        assert await completed(client, "ref/prompt", {"name": "pack"}) == ["mine"]
        below.remove_prompt("pack")
        assert await completed(client, "ref/prompt", {"name": "pack"}) == ["mine"]


def circle():
    one, other = Server("one"), Server("other")
    one.mount(other)
    other.mount(one)


def twice():
    one, other = Server("one"), Server("other")
    one.mount(other)
    one.mount(other, prefix="x")


def without_a_place():
    below = Server("below")
    below.add_resource("urn:x", lambda: "")
    Server("main").mount(below, prefix="w")


def too_long():
    below = Server("below")
    below.add_tool(lambda: None, name="x" * 60)
    Server("main").mount(below, prefix="weather")


def itself():
    server = Server("s")
    server.mount(server)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (circle, "server 'one' is mounted in 'other' already, or the other way round"),
        (twice, "server 'other' is mounted in 'one' already"),
        (itself, "server 's' is mounted in 's' already"),
        (without_a_place, "a prefix goes behind '://', which it has not; mount the server without one"),
        (too_long, "it is no name of 1 to 64 letters"),
        (
            lambda: Server("s").mount(Server("t"), prefix="a b"),
            "a prefix is letters, digits, '_', '-' and '.'",
        ),
        (lambda: Server("s").mount("t"), "server.mount() takes a mcpbus.Server, not 't'"),
    ],
)
def test_what_cannot_be_mounted_is_refused(mistake, sentence):
    with pytest.raises(RegistrationError) as refused:
        mistake()
    assert sentence in str(refused.value)


async def test_nothing_is_mounted_in_a_server_that_is_open(autojump_clock):
    main = Server("main")
    async with open_bus(main):
        with pytest.raises(RuntimeError, match="mount others before it is opened"):
            main.mount(weather())


async def test_nothing_is_mounted_in_a_server_that_is_mounted_in_one_that_is_open(autojump_clock):
    below, main = Server("below"), Server("main")
    main.mount(below)
    async with open_bus(main):
        with pytest.raises(RuntimeError, match="server 'below' is open: mount others before it is opened"):
            below.mount(weather())


async def test_what_is_mounted_in_two_ways_is_opened_once(autojump_clock):
    log, below = [], {name: Server(name) for name in "bc"}

    @asynccontextmanager
    async def lifespan(server):
        log.append("opened")
        yield "sun"

    shared, main = weather(lifespan=lifespan), Server("main")

    @shared.on_session
    async def welcome(session):
        log.append("hello")

    @shared.on_session_end
    async def part(session):
        log.append("bye")

    for name, server in below.items():
        server.mount(shared, prefix="w")
        main.mount(server, prefix=name)
    async with open_client(main, revision="2025-11-25") as client:
        for name in below:
            assert await text(client, f"{name}_w_now", city="Oslo") == "Oslo: sun"
    assert log == ["opened", "hello", "bye"]


async def test_a_change_below_from_another_thread_is_refused(autojump_clock):
    below, main = weather(), Server("main")
    main.mount(below, prefix="w")
    async with open_bus(main):
        with ThreadPoolExecutor(1) as threads:
            adding = threads.submit(below.add_tool, lambda: None, name="new")
            with pytest.raises(
                RuntimeError, match=r"server.add_tool\(\) belongs to the thread that trio runs in"
            ):
                adding.result()
    assert "new" not in below.features.tools


def test_scopes_need_somebody_who_asks_for_them_here_too():
    below, main = weather(), Server("main")
    main.features.refuse_scopes()
    main.mount(below)
    with pytest.raises(RegistrationError, match="nobody asks for over HTTP"):
        below.add_tool(lambda: None, name="secret", scopes=["secret"])
    scoped = Server("scoped")
    scoped.add_tool(lambda: None, name="secret", scopes=["secret"])
    with pytest.raises(RegistrationError, match="a mounted server has scopes="):
        main.mount(scoped, prefix="x")


async def test_what_is_disabled_above_stays_so_when_it_goes_below_and_comes_back(autojump_clock):
    main, below = Server("main"), weather()
    main.mount(below, prefix="w")
    main.disable(names=["w_now"])
    async with open_client(main) as client:
        below.disable(names=["now"])
        below.enable(names=["now"])
        assert await names(client, "tools") == []
        main.enable(names=["w_now"])
        assert await names(client, "tools") == ["w_now"]
        below.disable(names=["now"])
        below.enable(names=["now"])
        assert await names(client, "tools") == ["w_now"]
        main.disable(names=["w_now"])
        below.remove_tool("now")
        below.add_tool(lambda: "x", name="now")
        assert await names(client, "tools") == ["w_now"], "another one of its name"
