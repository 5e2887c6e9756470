"""What handlers depend on: made before them, once in each call, cleaned up after them, and nothing that clients see."""

import threading
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated

import pytest
import trio
import trio.testing

from mcpbus import Context, Depends, ProtocolError, RegistrationError, Server, SyncContext, ToolError

log = []


@pytest.fixture(autouse=True)
def _empty_log():
    log.clear()


class Database:
    """What most handlers share."""

    def __init__(self, name: str = "db") -> None:
        self.name = name


def plain() -> Database:
    return Database()


async def awaited() -> Database:
    await trio.lowlevel.checkpoint()
    return Database()


def generator():
    log.append("open")
    try:
        yield Database()
    finally:
        log.append("close")


async def async_generator():
    log.append("open")
    await trio.lowlevel.checkpoint()
    try:
        yield Database()
    finally:
        log.append("close")


class Factory:
    __hash__ = None

    async def __call__(self) -> Database:
        return Database()


PROVIDERS = {
    "a plain function": (plain, []),
    "an async function": (awaited, []),
    "a class": (Database, []),
    "an object that is called": (Factory(), []),
    "a partial": (partial(Database, "db"), []),
    "a generator": (generator, ["open", "close"]),
    "an async generator": (async_generator, ["open", "close"]),
    "a context manager": (contextmanager(generator), ["open", "close"]),
    "an async context manager": (asynccontextmanager(async_generator), ["open", "close"]),
}


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("inline", [True, False])
async def test_a_parameter_is_filled_with_what_is_provided(server, client, name, asynchronous, inline):
    provider, logged = PROVIDERS[name]
    server.runner.inline = inline

    async def shout(word: str, db: Database = Depends(provider)) -> str:
        log.append("run")
        return f"{word} {db.name}"

    def say(word: str, db: Annotated[Database, Depends(provider)]) -> str:
        log.append("run")
        return f"{word} {db.name}"

    server.add_tool(shout if asynchronous else say, name="tool")
    assert await client.text("tool", word="hello") == "hello db"
    assert log == [*logged[:1], "run", *logged[1:]]


def test_clients_see_nothing_of_it(server, client):
    @server.tool
    async def find(word: str, db: Database = Depends(plain)) -> str: ...

    assert client.tool("find")["inputSchema"] == {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    }


async def test_a_client_cannot_give_it(server, client):
    @server.tool
    async def find(db: Database = Depends(plain)) -> str: ...

    result = await client.call("find", db={"name": "theirs"})
    assert result["isError"]
    assert "unknown argument `db`" in result["content"][0]["text"]


async def test_prompts_and_resources_depend_too(server, client):
    @server.resource("db://{table}")
    async def read(table: str, db: Database = Depends(async_generator)) -> str:
        return f"{table} of {db.name}"

    @server.prompt
    def ask(db: Database = Depends(generator)) -> str:
        return f"What is in {db.name}?"

    assert (await client.run("resources/read", uri="db://users"))["contents"][0]["text"] == "users of db"
    prompted = await client.run("prompts/get", name="ask")
    assert prompted["messages"][0]["content"]["text"] == "What is in db?"
    assert log == ["open", "close"] * 2


async def test_each_is_made_once_in_a_call_and_before_what_depends_on_it(server, client):
    made = []

    def connect():
        made.append("connect")
        yield len(made)
        made.append("disconnect")

    async def users(db: int = Depends(connect)) -> str:
        return f"users of {db}"

    async def posts(db: int = Depends(connect), users: str = Depends(users)):
        made.append("posts")
        yield f"posts and {users} of {db}"
        made.append("no posts")

    @server.tool
    async def both(posts: str = Depends(posts), db: int = Depends(connect)) -> str:
        return f"{posts}, {db}"

    assert await client.text("both") == "posts and users of 1 of 1, 1"
    assert made == ["connect", "posts", "no posts", "disconnect"]
    assert await client.text("both") == "posts and users of 5 of 5, 5"


async def test_a_provider_takes_the_context_of_its_kind(server, connect):
    async def user(ctx: Context) -> str:
        return f"{ctx.principal} {type(ctx).__name__}"

    def plain_user(ctx: SyncContext) -> str:
        return f"{ctx.principal} {type(ctx).__name__}"

    @server.tool
    async def who(
        ctx: Context, one: str = Depends(user), other: str = Depends(plain_user, thread=False)
    ) -> str:
        return f"{one}, {other}, {type(ctx).__name__}"

    client = connect(server, principal="ada")
    assert await client.text("who") == "ada Context, ada SyncContext, Context"


@pytest.mark.parametrize(
    ("function_thread", "provider_thread", "same"),
    [(True, True, True), (False, False, True), (True, False, False), (False, True, False)],
)
async def test_a_plain_provider_runs_in_the_thread_of_a_plain_function(
    server, connect, function_thread, provider_thread, same
):
    main = threading.get_ident()

    def provider():
        log.append(threading.get_ident())
        yield threading.get_ident()
        log.append(threading.get_ident())

    @server.tool(thread=function_thread)
    def tool(made: int = Depends(provider, thread=provider_thread)) -> bool:
        assert (threading.get_ident() == main) is not function_thread
        assert (made == main) is not provider_thread
        return made == threading.get_ident()

    assert (await connect(server).call("tool"))["structuredContent"] is same
    assert {ident == main for ident in log} == {not provider_thread}
    assert len(log) == 2


@pytest.mark.parametrize("provider", [generator, async_generator])
@pytest.mark.parametrize("error", [ToolError("no"), ProtocolError(7, "no")])
async def test_what_is_opened_is_closed_when_the_handler_fails(server, client, provider, error):
    @server.tool
    async def fail(db: Database = Depends(provider)) -> str:
        raise error

    if isinstance(error, ToolError):
        assert (await client.call("fail"))["isError"]
    else:
        with pytest.raises(ProtocolError):
            await client.call("fail")
    assert log == ["open", "close"]


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_what_a_provider_raises_counts_as_raised_by_the_handler(server, client, asynchronous):
    def forbid(opened: Database = Depends(generator)) -> str:
        raise ToolError("not for you")

    async def run(never: str = Depends(forbid)) -> str: ...
    def run_plainly(never: str = Depends(forbid)) -> str: ...

    server.add_tool(run if asynchronous else run_plainly, name="run")
    assert await client.text("run") == "not for you"
    assert log == ["open", "close"]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("provider", [generator, async_generator])
async def test_a_cancelled_call_closes_what_it_opened(server, connect, provider, inline):
    entered = trio.Event()

    @server.tool
    async def wait(db: Database = Depends(provider)) -> str:
        entered.set()
        await trio.sleep_forever()
        raise AssertionError

    server.runner.inline = inline
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect(server).call, "wait")
        await entered.wait()
        nursery.cancel_scope.cancel()
    assert log == ["open", "close"]


async def test_the_timeout_of_a_tool_includes_its_providers(server, client, autojump_clock):
    async def slow() -> int:
        await trio.sleep(10)
        return 1

    @server.tool(timeout=3)
    async def use(n: int = Depends(slow)) -> int: ...

    assert await client.text("use") == "Tool use timed out after 3 s"


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_provider_that_keeps_an_error_to_itself_does_not_make_a_result(
    server, client, caplog, asynchronous
):
    def forgiving():
        try:
            yield 1
        except ToolError:
            log.append("caught")

    async def fail(n: int = Depends(forgiving)) -> str:
        raise ToolError("no")

    def fail_plainly(n: int = Depends(forgiving)) -> str:
        raise ToolError("no")

    server.add_tool(fail if asynchronous else fail_plainly, name="fail")
    assert await client.text("fail") == "Tool fail failed"
    assert log == ["caught"]
    assert "one of its dependencies has caught that" in caplog.text


async def test_middleware_sees_what_the_client_said_and_no_more(connect):
    async def note(invocation, call_next):
        log.append(dict(invocation.arguments))
        return await call_next(invocation)

    server = Server("s", middleware=[note])

    @server.tool
    async def say(word: str, db: Database = Depends(plain, thread=False)) -> str:
        return f"{word} {db.name}"

    assert await connect(server).text("say", word="hi") == "hi db"
    assert log == [{"word": "hi"}]


async def wants(city: str) -> str: ...
async def wants_sync(ctx: SyncContext) -> str: ...
def wants_async(ctx: Context) -> str: ...


class Elsewhere:
    __module__ = "fastapi.params"


Elsewhere.__name__ = "Depends"

MISTAKES = {
    "a parameter that nobody fills": (Depends(wants), "'wants': nobody fills its parameter 'city'"),
    "the context of a plain provider": (
        Depends(wants_sync),
        "'wants_sync': is async and takes a SyncContext",
    ),
    "the context of an async provider": (Depends(wants_async), "annotate SyncContext, or write async def"),
    "a call": (Depends(plain()), "Depends takes the function that makes it, without parentheses"),
    "another library's": (Elsewhere(), "a Depends of fastapi; write from mcpbus import Depends"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_at_registration(server, name):
    default, sentence = MISTAKES[name]

    async def tool(made=default): ...

    with pytest.raises(RegistrationError) as refused:
        server.add_tool(tool)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("tool 'tool', ")


def test_a_provider_that_depends_on_itself_is_refused(server):
    async def inner(n=None): ...

    async def outer(n=Depends(inner)): ...

    inner.__defaults__ = (Depends(outer),)

    async def tool(n=Depends(outer)): ...

    with pytest.raises(RegistrationError, match="'outer', 'inner', 'outer': depends on itself"):
        server.add_tool(tool)


async def test_what_is_opened_is_closed_though_all_threads_wait_for_that():
    server, pool = Server("s", max_threads=1), threading.Semaphore(1)
    entered, waiting, go = trio.Event(), threading.Event(), trio.Event()

    def connection():
        if entered.is_set():
            waiting.set()
        assert pool.acquire(timeout=60)
        try:
            yield Database()
        finally:
            pool.release()

    @server.tool
    async def use(db: Database = Depends(connection)) -> str:
        entered.set()
        await go.wait()
        return db.name

    results = []

    async def call(client):
        results.append((await client.call_tool("use", {}))["content"][0]["text"])

    async with server.open() as bus, bus.connect() as client, trio.open_nursery() as nursery:
        nursery.start_soon(call, client)
        await entered.wait()
        nursery.start_soon(call, client)
        await trio.to_thread.run_sync(waiting.wait, 10)
        go.set()
    assert results == ["db", "db"]


@pytest.mark.parametrize("user", ["the function", "a provider"])
async def test_what_a_thread_still_uses_is_not_closed_though_its_call_is_cancelled(user):
    server, begun, go, closed = Server("s"), threading.Event(), threading.Event(), trio.Event()

    async def connection():
        try:
            yield Database()
        finally:
            log.append("closed")
            closed.set()

    def use(db: Database = Depends(connection)) -> str:
        begun.set()
        assert go.wait(60)
        log.append("used")
        return db.name

    def through(used: str = Depends(use)) -> str:
        return used

    server.add_tool(use if user == "the function" else through, name="tool")
    async with server.open() as bus, bus.connect() as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "tool", {})
        await trio.to_thread.run_sync(begun.wait, 60)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert log == []
            go.set()
            await closed.wait()
    assert log == ["used", "closed"]
