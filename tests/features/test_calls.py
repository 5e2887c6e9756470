"""How functions run: where, under what, and what becomes of what they raise."""

import functools
import threading

import attrs
import pytest
import trio
import trio.testing

from mcpbus import Context
from mcpbus.core.sync_context import SyncContext
from mcpbus.features.errors import RegistrationError, ToolError
from mcpbus.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, ProtocolError
from mcpbus.server import Server
from mcpbus.testing import open_client


async def test_a_plain_function_runs_in_a_thread_unless_it_says_otherwise(server, connect):
    names = [lambda: str(threading.current_thread() is threading.main_thread())] * 2
    server.add_tool(names[0], name="away")
    server.add_tool(names[1], name="here", thread=False)
    client = connect(server)
    assert (await client.text("away"), await client.text("here")) == ("False", "True")
    server.runner.inline = True
    assert await client.text("away") == "True"


async def test_as_many_threads_as_the_server_has_run_at_once(connect):
    server, release = Server("s", max_threads=2), threading.Event()
    server.add_tool(lambda: release.wait(60), name="work")
    client = connect(server)
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(client.call, "work")
        await trio.testing.wait_all_tasks_blocked()
        threads = server.runner.places()
        seen = (len(threads), threads.waiting)
        release.set()
    assert seen == (2, 4)


async def test_a_cancelled_call_leaves_its_thread_behind(server, connect):
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    @server.tool
    def stuck() -> None:
        begun.set()
        release.wait(60)
        ended.set()

    client = connect(server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call, "stuck")
        await trio.to_thread.run_sync(begun.wait, 60)
        nursery.cancel_scope.cancel()
    assert not ended.is_set()
    release.set()


async def test_a_plain_function_gets_the_blocking_context(server, client):
    @server.tool
    def who(ctx: SyncContext) -> str:
        return f"{type(ctx).__name__} {ctx.request_id}"

    assert await client.text("who") == "SyncContext 1"


async def test_a_tool_that_takes_too_long_fails(server, client, autojump_clock):
    cancelled = trio.Event()

    @server.tool(timeout=2.5)
    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    result = await client.call("slow")
    assert result["isError"]
    assert result["content"][0]["text"] == "Tool slow timed out after 2.5 s"
    assert trio.current_time() == pytest.approx(2.5, abs=0.1) or cancelled.is_set()


async def test_a_prompt_that_takes_too_long_is_an_error(server, client, autojump_clock):
    @server.prompt(timeout=1)
    async def slow() -> str:
        await trio.sleep_forever()

    with pytest.raises(ProtocolError, match="prompts/get slow timed out after 1 s") as refused:
        await client.run("prompts/get", name="slow")
    assert refused.value.code == INTERNAL_ERROR


async def raise_in_a_nursery(error):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(raise_it, error)


async def raise_it(error):
    raise error


@pytest.mark.parametrize("raising", [raise_it, raise_in_a_nursery])
async def test_a_tool_error_is_for_the_model(server, client, caplog, raising):  # F-15
    @server.tool
    async def fail() -> None:
        await raising(ToolError("no such city"))

    result = await client.call("fail")
    assert (result["isError"], result["content"][0]["text"]) == (True, "no such city")
    assert not caplog.records


@pytest.mark.parametrize("text", [(), ("",), (" ",)])
async def test_one_without_a_text_is_a_failure_as_any_other(server, client, caplog, text):
    @server.tool
    async def fail() -> None:
        raise ToolError(*text)

    result = await client.call("fail")
    assert (result["isError"], result["content"][0]["text"]) == (True, "Tool fail failed")
    assert [record.message for record in caplog.records] == ["tools/call fail failed"]


async def test_what_a_tool_error_says_need_not_be_unicode(server, client):
    server.add_tool(lambda: (_ for _ in ()).throw(ToolError("caf\udce9")), name="fail")
    assert await client.text("fail") == "caf?"


@pytest.mark.parametrize("raising", [raise_it, raise_in_a_nursery])
@pytest.mark.parametrize("kind", ["tools/call", "prompts/get"])
async def test_a_protocol_error_is_for_the_client(server, client, raising, kind):
    async def fail() -> None:
        await raising(ProtocolError(7, "seven", {"n": 7}))

    server.add_tool(fail)
    server.add_prompt(fail)
    with pytest.raises(ProtocolError) as refused:
        await client.run(kind, name="fail")
    assert (refused.value.code, refused.value.data) == (7, {"n": 7})


async def test_any_other_exception_is_for_the_log(server, client, caplog):
    @server.tool
    async def fail() -> None:
        raise KeyError("a secret")

    server.add_prompt(fail)
    result = await client.call("fail")
    assert (result["isError"], result["content"][0]["text"]) == (True, "Tool fail failed")
    with pytest.raises(ProtocolError) as refused:
        await client.run("prompts/get", name="fail")
    assert (refused.value.code, refused.value.message) == (INTERNAL_ERROR, "Internal error")
    assert caplog.text.count("KeyError: 'a secret'") == 2


@pytest.mark.parametrize(
    ("revision", "as_result"),
    [
        ("2024-11-05", False),
        ("2025-03-26", False),
        ("2025-06-18", False),
        ("2025-11-25", True),
        ("2026-07-28", True),
    ],
)
async def test_bad_arguments_are_told_where_the_revision_wants_it(server, connect, revision, as_result):
    @server.tool
    async def count(n: int) -> None: ...

    client = connect(server, revision)
    if as_result:
        result = await client.call("count", n="x")
        assert (result["isError"], result["content"][0]["text"]) == (
            True,
            'Invalid arguments for tool count: argument `n`: Input should be a valid integer, got "x"',
        )
    else:
        with pytest.raises(ProtocolError, match="argument `n`: Input should be a valid integer") as refused:
            await client.call("count", n="x")
        assert refused.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    "params",
    [
        {"name": "nope"},
        {},
        {"name": 3},
        {"name": "count", "arguments": []},
        {"name": "count", "arguments": "n"},
    ],
)
async def test_a_malformed_call_is_an_error_in_every_revision(server, connect, params):  # F-12, F-14
    server.add_tool(lambda: None, name="count")
    for revision in ("2024-11-05", "2026-07-28"):
        with pytest.raises(ProtocolError) as refused:
            await connect(server, revision).run("tools/call", **params)
        assert refused.value.code == INVALID_PARAMS


async def test_arguments_may_be_left_out(server, client):  # F-21
    server.add_tool(lambda: "ok", name="t")
    assert (await client.run("tools/call", name="t"))["content"][0]["text"] == "ok"


async def test_middleware_wraps_every_kind_of_call_the_first_outermost(connect):
    seen = []

    def note(label):
        async def middleware(invocation, call_next):
            seen.append((label, invocation.method, invocation.name, dict(invocation.arguments)))
            return await call_next(invocation)

        return middleware

    server = Server("s", middleware=[note("outer"), note("inner")])
    server.runner.inline = True
    server.add_tool(lambda a: "t", name="t")
    server.add_prompt(lambda a: "p", name="p")
    server.add_resource("x://{a}", lambda a: "r")
    server.completion("p", "a")(lambda value: [])
    client = connect(server)
    await client.call("t", a=1)
    await client.run("prompts/get", name="p", arguments={"a": "2"})
    await client.run("resources/read", uri="x://3")
    await client.run(
        "completion/complete", ref={"type": "ref/prompt", "name": "p"}, argument={"name": "a", "value": "4"}
    )
    inner = [entry[1:] for entry in seen if entry[0] == "inner"]
    assert inner == [
        ("tools/call", "t", {"a": 1}),
        ("prompts/get", "p", {"a": "2"}),
        ("resources/read", "x://3", {"a": "3"}),
        ("completion/complete", "p", {"value": "4"}),
    ]
    assert [entry[0] for entry in seen] == ["outer", "inner"] * 4


async def test_middleware_may_change_what_goes_in_and_out_and_refuse(connect):
    async def double(invocation, call_next):
        if invocation.arguments["n"] == 0:
            raise ToolError("not zero")
        return 2 * await call_next(attrs.evolve(invocation, arguments={"n": 10}))

    server = Server("s", middleware=[double])

    @server.tool
    async def same(n: int) -> int:
        return n

    client = connect(server)
    assert await client.text("same", n=1) == "20"
    assert await client.text("same", n=0) == "not zero"


def test_a_prepared_call_says_what_it_is(server, client):
    server.add_tool(lambda: None, name="t")
    _, prepared = client.begin("tools/call", name="t")
    assert prepared.label == "tools/call t"


def test_on_session_takes_async_functions(server):
    with pytest.raises(RegistrationError, match="not an async function"):
        server.on_session(lambda session: None)


def _plain(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def _twice(function):
    return _plain(_plain(function))


def _at_once(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return "at once"

    return wrapper


@pytest.mark.parametrize(
    ("decorate", "says"), [(_plain, "x in a task"), (_twice, "x in a task"), (_at_once, "at once")]
)
async def test_a_plain_wrapper_of_an_async_function_is_served_as_one(decorate, says):
    server = Server("wrapped")

    async def function(city: str, ctx: Context) -> str:
        trio.lowlevel.current_task()
        await ctx.info("on its way")
        return f"{city} in a task"

    wrapped = decorate(function)
    server.tool(wrapped)
    server.prompt(wrapped)
    server.resource("x://{city}")(wrapped)
    async with open_client(server) as client:
        result = await client.call_tool("function", {"city": "x"})
        assert result["content"][0]["text"] == says
        assert (await client.get_prompt("function", {"city": "x"}))[0]["content"]["text"] == says
        assert (await client.read_resource("x://x"))[0]["text"] == says
