"""Which connection a call goes over, how many there are, and what becomes of them."""

import logging
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import trio
from scripted import Scripted, initialize
from trio.testing import wait_all_tasks_blocked
from upstreams import ELICITATION, NEW, OLD, proxy_of, upstream, weather

from mcpbus import Context, InputRefusedError, ProtocolError, Server
from mcpbus.client.errors import ClientError
from mcpbus.testing import open_bus, open_probe
from mcpbus.upstream.connection import IDLE_SECONDS
from mcpbus.upstream.connection_pool import WAIT_SECONDS
from mcpbus.upstream.target import UpstreamError


@asynccontextmanager
async def served(there=OLD, *, scoped=False, **options):
    """A proxy that is open, with the upstream that it stands for."""
    async with upstream(weather(), there) as reached:
        reached.scoped = scoped
        async with open_bus(proxy_of(reached, **options)) as bus:
            yield reached, bus


async def answer(_method, _params):
    return {"action": "accept", "content": {"value": "Ada"}}


def asked(**declared):
    return {"capabilities": declared or ELICITATION, "on_input_request": answer}


async def counted(client):
    return (await client.call_tool("count"))["content"][0]["text"]


async def test_each_session_has_a_connection_of_its_own(autojump_clock):
    async with served() as (reached, bus):
        async with bus.connect(revision=OLD) as ada, bus.connect(revision=OLD) as bob:
            assert [await counted(ada), await counted(ada), await counted(bob)] == ["1", "2", "1"]
            assert reached.connected == 3  # and one to hear of changes
        await wait_all_tasks_blocked()
        assert reached.connected == 1, "those of sessions that have ended are still there"


@pytest.mark.parametrize("scoped", [False, True])
async def test_clients_without_sessions_share_a_connection_with_who_is_the_same_and_can_be_asked_the_same(
    scoped, autojump_clock
):
    async with served(scoped=scoped) as (reached, bus), AsyncExitStack() as stack:

        async def connect(principal=None, **given):
            return await stack.enter_async_context(bus.connect(revision=NEW, principal=principal, **given))

        clients = [
            await connect(),
            await connect(),
            await connect(**asked()),
            await connect(**asked()),
            await connect("ada"),
            await connect("ada", **asked()),
            await connect("bob", **asked()),
        ]
        assert [await counted(each) for each in clients] == ["1", "2", "1", "2", "1", "1", "1"]
        assert reached.declared == [{}, {}, ELICITATION, {}, ELICITATION, ELICITATION]


async def test_all_share_one_connection_to_a_server_of_2026(autojump_clock):
    async with served(NEW, scoped=True) as (reached, bus), AsyncExitStack() as stack:
        for revision in (OLD, NEW):
            for principal in (None, "ada"):
                connecting = bus.connect(revision=revision, principal=principal, **asked())
                client = await stack.enter_async_context(connecting)
                assert (await client.call_tool("ask"))["content"][0]["text"] == "Ada"
                await client.call_tool("forecast", {"city": "Oslo"}, log_level="debug")
        assert reached.declared == [{}]


async def test_a_program_of_2026_is_one_process_for_each_client(autojump_clock):
    """The one that belongs to no client hears of changes, and is there besides those that are counted."""
    async with served(NEW, program=True, connections=1) as (reached, bus), AsyncExitStack() as stack:
        started = []
        for principal in (None, "ada", "bob"):
            for revision in (OLD, NEW):
                connecting = bus.connect(revision=revision, principal=principal, **asked())
                client = await stack.enter_async_context(connecting)
                assert (await client.call_tool("ask"))["content"][0]["text"] == "Ada"
                started.append((len(reached.clients), reached.connected))
        assert started == [(2, 2), (2, 2), (3, 2), (3, 2), (4, 2), (4, 2)]
        assert bus.statistics().limits_reached == {}


class Guest:
    """A principal that is itself alone, and so has the quota of its address."""


class Custom(Guest):
    """One that is compared by a rule of its own, and has the hash of all of its kind."""

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return 1


@pytest.mark.parametrize("kind", [Guest, Custom])
async def test_principals_with_one_quota_have_processes_of_their_own(kind, autojump_clock):
    async with served(NEW, program=True) as (reached, bus), AsyncExitStack() as stack:
        started = []
        for principal in (ann := kind(), kind(), ann):
            client = await stack.enter_async_context(
                bus.connect(revision=NEW, principal=principal, **asked())
            )
            assert (await client.call_tool("ask"))["content"][0]["text"] == "Ada"
            started.append(reached.connected)
        assert started == [2, 3, 3]  # besides the one that lists


@pytest.mark.parametrize(
    ("there", "scoped", "declared", "level", "connections"),
    [
        (OLD, False, {}, None, 2),
        (OLD, False, ELICITATION, None, 2),
        (OLD, False, {}, "info", 2),
        (OLD, True, ELICITATION, "info", 2),
        (NEW, False, ELICITATION, None, 1),
        (NEW, False, {}, "info", 1),
        (NEW, True, ELICITATION, "info", 1),
    ],
)
async def test_the_calls_of_one_client_go_over_one_connection(
    *, there, scoped, declared, level, connections, autojump_clock
):
    async with served(there, scoped=scoped) as (reached, bus), trio.open_nursery() as nursery:
        given = asked(**declared) if declared else {}
        async with bus.connect(revision=NEW, **given) as client:
            for _ in range(3):
                nursery.start_soon(lambda: client.call_tool("hang", log_level=level))
            await wait_all_tasks_blocked()
            assert reached.connected == connections
            nursery.cancel_scope.cancel()
    assert reached.connected == 0


async def test_clients_that_cannot_say_what_they_want_share_a_process(autojump_clock):
    async with served(program=True) as (reached, bus), trio.open_nursery() as nursery:
        app = bus.asgi(sessions="stateless")
        async with open_probe(app) as probe:
            for _ in range(3):
                body = {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "tools/call",
                    "params": {"name": "hang", "arguments": {}},
                }
                probe.post(body)
            await wait_all_tasks_blocked()
            assert len(reached.clients) == 1
        nursery.cancel_scope.cancel()


async def test_lines_and_questions_of_calls_at_once_come_to_the_call_that_they_are_of(autojump_clock):
    heard = {}
    async with served() as (_, bus), trio.open_nursery() as nursery:

        async def call(number):
            async def answer(_method, params):
                return {"action": "accept", "content": {"value": f"{params['message']} {number}"}}

            given = {"capabilities": ELICITATION, "on_input_request": answer}
            async with bus.connect(revision=NEW, principal=f"client {number}", **given) as client:
                lines = []
                asking = await client.call_tool("ask", {"times": 2})
                await client.call_tool(
                    "forecast",
                    {"city": str(number)},
                    on_notification=lambda _, said: lines.append(said.get("data")),
                    log_level="info",
                )
                heard[number] = asking["content"][0]["text"], [each for each in lines if each]

        for number in range(9):
            nursery.start_soon(call, number)
    assert heard == {n: (f"Question 1? {n} Question 2? {n}", [f"forecast for {n}"]) for n in range(9)}


async def test_what_calls_of_a_session_ask_at_the_same_time_is_asked_in_that_session(autojump_clock):
    """A program does not say which of the two asks, but who is asked is the same."""
    texts = []
    async with (
        served() as (_, bus),
        bus.connect(revision=OLD, **asked()) as client,
        trio.open_nursery() as nursery,
    ):

        async def ask(times):
            texts.append((await client.call_tool("ask", {"times": times}))["content"][0]["text"])

        nursery.start_soon(ask, 2)
        nursery.start_soon(ask, 3)
    assert sorted(texts) == ["Ada Ada", "Ada Ada Ada"]


async def test_a_question_is_asked_once_though_the_call_ends_on_whose_stream_it_was_asked(autojump_clock):
    server, ending, asked_in, answers = Server("two"), trio.Event(), [], []

    @server.tool
    async def ask(ctx: Context) -> str:
        await trio.sleep(1)
        answers.append((await ctx.elicit("Who?", str)).data)
        return answers[0]

    @server.tool
    async def end() -> str:
        await ending.wait()
        return "ended"

    async def wait_once(method, params):
        asked_in.append(params["message"])
        if not ending.is_set():
            ending.set()
            await trio.sleep(1)
        return await answer(method, params)

    async with (
        upstream(server, OLD) as reached,
        open_bus(proxy_of(reached, program=True)) as bus,
        bus.connect(revision=OLD, capabilities=ELICITATION, on_input_request=wait_once) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.call_tool, "ask")
        await wait_all_tasks_blocked()
        nursery.start_soon(client.call_tool, "end")
    assert asked_in == ["Who?"]
    assert answers == ["Ada"]


async def test_what_is_asked_outside_of_calls_is_asked_in_the_session_whose_own_the_connection_is(
    autojump_clock,
):
    server, sessions = Server("late"), []

    @server.tool
    async def begin(ctx: Context) -> None:
        sessions.append(ctx.session)

    async with upstream(server, OLD) as reached, open_bus(proxy_of(reached, program=True)) as bus:
        async with bus.connect(revision=OLD, **asked()) as client:
            await client.call_tool("begin")
            assert (await sessions[0].elicit("Who?", str)).data == "Ada"
        async with bus.connect(revision=NEW, **asked()) as client:
            await client.call_tool("begin")
            with pytest.raises(InputRefusedError, match="Method not found"):
                await sessions[1].elicit("Who?", str)


async def test_roots_are_told_though_the_call_has_ended_in_which_they_were_asked_for(autojump_clock):
    """As filesystem servers ask for them once somebody has connected, and with his first call something is said at all."""
    server, told = Server("files"), []

    async def answer_later(_method, _params):
        await trio.sleep(5)
        return {"roots": [{"uri": "file:///data"}]}

    async with trio.open_nursery() as nursery:

        async def look(session):
            told.extend(root.uri for root in await session.list_roots())

        @server.tool
        async def begin(ctx: Context) -> None:
            nursery.start_soon(look, ctx.session)
            await trio.sleep(1)

        given = {"capabilities": {"roots": {}}, "on_input_request": answer_later}
        async with (
            upstream(server, OLD) as reached,
            open_bus(proxy_of(reached, program=True)) as bus,
            bus.connect(revision=OLD, **given) as client,
        ):
            await client.call_tool("begin")
            await trio.sleep(20)
    assert told == ["file:///data"]


async def test_a_line_of_nobody_knows_which_call_comes_to_no_other_client(autojump_clock):
    """A program of 2026-07-28 is one process for all, and does not say to which call its log lines belong."""
    async with served(NEW) as (reached, bus), trio.open_nursery() as nursery, AsyncExitStack() as stack:
        lines = {}

        async def call(client, tool, who, **arguments):
            said = lines.setdefault(who, [])
            await client.call_tool(
                tool,
                arguments,
                on_notification=lambda _, each: said.append(each.get("data")),
                log_level="info",
            )

        async def connect(revision):
            return await stack.enter_async_context(bus.connect(revision=revision))

        ada, bob, old = await connect(NEW), await connect(NEW), await connect(OLD)
        await call(ada, "forecast", "alone", city="Oslo")
        nursery.start_soon(call, old, "hang", "of the session")
        await wait_all_tasks_blocked()
        await call(old, "forecast", "of the session", city="Bergen")
        nursery.start_soon(call, bob, "hang", "bob")
        await wait_all_tasks_blocked()
        await call(ada, "forecast", "ada", city="Rome")
        nursery.cancel_scope.cancel()
    assert reached.connected == 0
    told = {who: [line for line in said if line is not None] for who, said in lines.items()}
    assert told == {"alone": ["forecast for Oslo"], "of the session": [], "bob": [], "ada": []}
    assert [params["data"] for method, params in old.notifications if method.endswith("message")] == [
        "forecast for Bergen"
    ]


async def test_a_connection_that_nobody_uses_is_closed_in_time(autojump_clock):
    async with served() as (reached, bus), bus.connect(revision=NEW, **asked()) as client:
        await client.call_tool("ask")
        assert reached.connected == 2
        await trio.sleep(IDLE_SECONDS - 1)
        assert reached.connected == 2
        await client.call_tool("ask")
        await trio.sleep(IDLE_SECONDS - 1)
        assert reached.connected == 2
        await trio.sleep(2)
        assert reached.connected == 1
        assert (await client.call_tool("ask"))["content"][0]["text"] == "Ada"


async def test_an_idle_connection_gives_way_where_there_are_too_many(autojump_clock):
    async with served(connections=1) as (reached, bus), AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(bus.connect(revision=NEW, principal=name, **asked()))
            for name in ("ada", "bob", "cid")
        ]
        for client in clients:
            assert (await client.call_tool("ask"))["content"][0]["text"] == "Ada"
            assert reached.connected == 2
        assert bus.statistics().limits_reached == {}


async def test_who_finds_all_connections_taken_waits_and_is_told_in_the_end(autojump_clock):
    async with (
        served(connections=1) as (reached, bus),
        bus.connect(revision=NEW, principal="ada", **asked()) as ada,
        bus.connect(revision=NEW, principal="bob", **asked()) as bob,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ada.call_tool, "hang")
        await wait_all_tasks_blocked()
        began = trio.current_time()
        with pytest.raises(ProtocolError, match="did not answer"):
            await bob.call_tool("ask")
        assert trio.current_time() - began == pytest.approx(WAIT_SECONDS)
        assert bus.statistics().limits_reached == {"connections": 1}
        nursery.cancel_scope.cancel()
    assert reached.connected == 0


async def test_who_waits_for_a_connection_gets_one_as_soon_as_one_is_given_back(autojump_clock):
    async with (
        served(connections=1) as (_, bus),
        bus.connect(revision=NEW, principal="ada", **asked()) as ada,
        bus.connect(revision=NEW, principal="bob", **asked()) as bob,
        trio.open_nursery() as nursery,
    ):

        async def hang():
            with trio.move_on_after(5):
                await ada.call_tool("hang")

        nursery.start_soon(hang)
        await wait_all_tasks_blocked()
        began = trio.current_time()
        assert (await bob.call_tool("ask"))["content"][0]["text"] == "Ada"
        assert trio.current_time() - began == pytest.approx(5)


async def test_a_connection_that_is_lost_fails_its_calls_and_the_next_call_has_another(
    autojump_clock, caplog
):
    async with served() as (reached, bus), bus.connect(revision=OLD) as client:
        assert await counted(client) == "1"
        async with trio.open_nursery() as nursery:

            async def hang():
                with pytest.raises(ProtocolError, match="did not answer"):
                    await client.call_tool("hang")

            nursery.start_soon(hang)
            await wait_all_tasks_blocked()
            reached.lose(reached.clients[-1])
        assert "was not answered by upstream: it was cut" in caplog.text
        assert await counted(client) == "1", "its session there has ended"


async def test_where_there_is_no_connection_calls_fail_and_it_is_not_tried_each_time(autojump_clock, caplog):
    caplog.set_level(logging.WARNING)
    async with served() as (reached, bus), bus.connect(revision=OLD) as client:
        reached.down = "it is being mended"
        reached.lose(reached.clients[-1])
        await wait_all_tasks_blocked()
        tried = 0
        original = reached.connect

        @asynccontextmanager
        async def connect(**given):
            nonlocal tried
            tried += 1
            async with original(**given) as found:
                yield found

        reached.connect = connect
        bus.server._upstream = None  # what is open has its own
        for _ in range(20):
            with pytest.raises(ProtocolError, match="upstream did not answer"):
                await client.call_tool("who")
        assert "being mended" not in str(client.notifications)
        assert "it is being mended" in caplog.text
        reached.down = None
        await trio.sleep(60)
        await client.call_tool("who")


@pytest.mark.parametrize("there", [OLD, NEW])
async def test_a_server_that_cannot_be_reached_at_the_start_is_told(there, autojump_clock):
    async with upstream(weather(), there) as reached:
        reached.down = "it is being mended"
        with pytest.raises(UpstreamError, match="upstream cannot be reached: it is being mended"):
            async with open_bus(proxy_of(reached)):
                pass


async def test_what_connects_may_raise_anything_and_the_proxy_lives(autojump_clock, caplog):
    broken = True

    async with upstream(weather(), OLD) as reached:
        original = reached.connect

        @asynccontextmanager
        async def connect(**given):
            if broken:
                raise ZeroDivisionError("of the author's")
            async with original(**given) as client:
                yield client

        reached.connect = connect
        async with open_bus(proxy_of(reached, optional=True)) as bus, bus.connect(revision=NEW) as client:
            with pytest.raises(ProtocolError):
                await client.call_tool("who")
            assert "ZeroDivisionError: of the author's" in caplog.text
            broken = False
            await trio.sleep(60)
            assert (await client.call_tool("who"))["content"]


# -- processes -------------------------------------------------------------------------------------


async def test_a_process_that_told_what_there_is_serves_the_first_client_that_declares_no_more(
    autojump_clock,
):
    async with served(program=True) as (reached, bus):
        assert reached.connected == 1
        async with bus.connect(revision=OLD) as client:
            assert await counted(client) == "1"
            assert len(reached.clients) == 1


@pytest.mark.parametrize("here", [OLD, NEW])
async def test_a_process_that_has_served_nobody_ends_before_the_next_one_begins(here, autojump_clock):
    async with upstream(weather(), OLD) as reached:
        original, most = reached.connect, 0

        @asynccontextmanager
        async def connect(**given):
            nonlocal most
            async with original(**given) as client:
                most = max(most, reached.connected)
                yield client

        reached.connect = connect
        async with (
            open_bus(proxy_of(reached, program=True)) as bus,
            bus.connect(revision=here, **asked()) as client,
        ):
            assert (await client.call_tool("ask"))["content"][0]["text"] == "Ada"
        assert (most, reached.declared) == (1, [{}, ELICITATION])


async def test_a_process_that_nobody_uses_ends_and_the_proxy_offers_what_it_did(autojump_clock):
    async with served(program=True) as (reached, bus), bus.connect(revision=NEW) as client:
        await trio.sleep(IDLE_SECONDS + 1)
        assert reached.connected == 0
        assert len(await client.list_tools()) == 7
        assert await counted(client) == "1"


async def test_a_process_of_2026_stays_to_hear_of_changes(autojump_clock):
    async with served(NEW, program=True) as (reached, bus), bus.connect(revision=OLD, **asked()) as client:
        await trio.sleep(IDLE_SECONDS + 1)
        assert (await client.call_tool("ask"))["content"][0]["text"] == "Ada"
        assert (len(reached.clients), reached.connected) == (2, 2)


async def test_whoever_connects_may_be_refused(autojump_clock):
    async with upstream(weather(), OLD) as reached:

        @asynccontextmanager
        async def connect(*, capabilities):
            await trio.sleep(1)
            raise ClientError(f"nobody may come who declares {capabilities}")
            yield

        reached.connect = connect
        with pytest.raises(UpstreamError, match=r"nobody may come who declares \{\}"):
            async with open_bus(proxy_of(reached)):
                pass


async def test_a_client_that_is_refused_has_nobody_else_be_refused(autojump_clock):
    def let_in_who_can_be_asked(wire, request, params):
        if params["capabilities"] in ({}, ELICITATION):
            return initialize(wire, request, params)
        wire.refuse(request, -32602, "no such client")
        return None

    scripted = Scripted(OLD, initialize=let_in_who_can_be_asked)
    async with (
        open_bus(scripted.proxy()) as bus,
        bus.connect(revision=OLD, **asked(sampling={})) as eve,
        bus.connect(revision=OLD, **asked(elicitation={"\ud7ff": 5, "form": "x"})) as ada,
    ):
        for _ in range(3):
            with pytest.raises(ProtocolError, match="did not answer"):
                await eve.call_tool("t")
        assert len(scripted.wires) == 2, "it is tried again each time"
        assert (await ada.call_tool("t"))["content"]


async def test_whatever_a_client_declares_there_are_few_kinds_of_connections(autojump_clock):
    async with served(scoped=True) as (reached, bus):
        for number in range(20):
            async with bus.connect(revision=NEW, **asked(elicitation={str(number): {}})) as client:
                await client.call_tool("who")
        assert reached.declared == [{}, ELICITATION]


async def test_attempts_that_fail_together_count_as_one(autojump_clock):
    async with served() as (reached, bus), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(bus.connect(revision=OLD)) for _ in range(20)]
        reached.down = "it is being mended"

        async def fail(client):
            with pytest.raises(ProtocolError, match="did not answer"):
                await client.call_tool("who")

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(fail, client)
        reached.down = None
        await trio.sleep(1.01)
        assert await counted(clients[0]) == "1"


async def test_who_has_little_loses_no_connection_to_who_has_much(autojump_clock):
    """And whoever has most makes room first, be it for themselves."""
    async with served(connections=10) as (_, bus), AsyncExitStack() as stack:

        async def connect(principal):
            return await stack.enter_async_context(bus.connect(revision=OLD, principal=principal))

        ada, bob = await connect("ada"), await connect("bob")
        busy = [await connect("eve") for _ in range(5)]
        idle = [await connect("eve") for _ in range(10)]
        assert await counted(ada) == "1"
        async with trio.open_nursery() as nursery:
            for client in busy:
                nursery.start_soon(client.call_tool, "hang")
            await wait_all_tasks_blocked()
            for client in idle:
                await counted(client)
            assert await counted(bob) == "1"
            assert [await counted(ada), await counted(bob)] == ["2", "2"]
            nursery.cancel_scope.cancel()


async def test_who_waits_in_vain_has_nobody_else_lose_a_connection(autojump_clock):
    async with (
        served(connections=2) as (_, bus),
        bus.connect(revision=OLD, principal="ada") as ada,
        trio.open_nursery() as nursery,
        AsyncExitStack() as stack,
    ):
        assert await counted(ada) == "1"

        async def hang(client):
            with suppress(ProtocolError):
                await client.call_tool("hang")

        for _ in range(3):
            nursery.start_soon(
                hang, await stack.enter_async_context(bus.connect(revision=OLD, principal="eve"))
            )
            await wait_all_tasks_blocked()
        assert [await counted(ada), await counted(ada)] == ["2", "3"]
        nursery.cancel_scope.cancel()


async def test_one_connection_will_do(autojump_clock):
    async with served(connections=1) as (_, bus), bus.connect(revision=OLD) as ada:
        assert await counted(ada) == "1"


async def test_calls_that_find_no_connection_all_at_once_wait_for_one_each(autojump_clock):
    async with served(connections=1) as (_, bus), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(bus.connect(revision=OLD)) for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.call_tool, "who")


async def test_nothing_is_opened_for_a_call_that_waits_no_more(autojump_clock):
    async with served(connections=1) as (reached, bus), AsyncExitStack() as stack:
        ada, eve, mallory = [
            await stack.enter_async_context(bus.connect(revision=OLD, principal=name))
            for name in ("ada", "eve", "mallory")
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ada.call_tool, "hang")
            await wait_all_tasks_blocked()
            for client in (eve, mallory):
                with trio.move_on_after(5):
                    await client.call_tool("who")
            nursery.cancel_scope.cancel()
        await trio.sleep(1)
        assert len(reached.clients) == 2, "one that hears of changes, and Ada's"
