"""Ready middleware, each around calls whose time is virtual."""

import itertools
import json
import logging

import pydantic
import pytest
import trio

from mcpbus import (
    Context,
    Depends,
    Elicit,
    Image,
    InputRequired,
    ProtocolError,
    Server,
    ToolAnnotations,
    ToolError,
    ToolResult,
)
from mcpbus.middleware import (
    RateLimitingMiddleware,
    ResponseCachingMiddleware,
    ResponseLimitingMiddleware,
    RetryMiddleware,
    StructuredLoggingMiddleware,
    TimingMiddleware,
)
from mcpbus.testing import open_bus, open_client

READS = ToolAnnotations(read_only_hint=True)


async def text(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    assert not result.get("isError"), result
    return result["content"][0]["text"]


async def refused(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    assert result["isError"]
    return result["content"][0]["text"]


def slow(*middleware):
    """A server whose tools take some time, and end in some way."""
    server = Server("s", middleware=middleware)

    @server.tool
    async def wait(seconds: float, way: str = "result") -> str:
        await trio.sleep(seconds)
        if way == "refuse":
            raise ToolError("no")
        if way == "fail":
            raise ValueError("a secret")
        return "done"

    return server


# -- timing --------------------------------------------------------------------------------------


async def test_the_log_is_told_how_long_each_call_took(caplog, autojump_clock):
    caplog.set_level(logging.INFO, "mcpbus.timing")
    async with open_client(slow(TimingMiddleware())) as client:
        await text(client, "wait", seconds=2.5)
        await refused(client, "wait", seconds=1, way="refuse")
        with trio.move_on_after(0.5):
            await client.call_tool("wait", {"seconds": 5})
        await trio.sleep(1)
    assert [record.getMessage() for record in caplog.records if record.name == "mcpbus.timing"] == [
        "tools/call wait took 2500.0 ms",
        "tools/call wait ended without a result after 1000.0 ms",
        "tools/call wait ended without a result after 500.0 ms",
    ]


async def test_the_logger_and_the_level_are_the_authors(caplog, autojump_clock):
    caplog.set_level(logging.DEBUG, "mine")
    server = slow(TimingMiddleware(logging.getLogger("mine"), logging.DEBUG))
    async with open_client(server) as client:
        await text(client, "wait", seconds=0)
    assert [(record.name, record.levelname) for record in caplog.records] == [("mine", "DEBUG")]


# -- structured logging --------------------------------------------------------------------------


async def test_each_call_leaves_a_line_of_json(caplog, autojump_clock):
    caplog.set_level(logging.INFO, "mcpbus.calls")
    async with open_client(slow(StructuredLoggingMiddleware()), revision="2025-11-25") as client:
        await text(client, "wait", seconds=1)
        for way in ("refuse", "fail"):
            await refused(client, "wait", seconds=0, way=way)
        with trio.move_on_after(1):
            await client.call_tool("wait", {"seconds": 5})
        await trio.sleep(1)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "mcpbus.calls"]
    first = lines[0]
    assert isinstance(first.pop("session"), str)
    assert isinstance(first.pop("request_id"), int)
    assert first == {"method": "tools/call", "name": "wait", "outcome": "ok", "ms": 1000.0}
    ends = [(line["outcome"], line["error"], line["ms"]) for line in lines[1:]]
    assert ends == [
        ("refused", "ToolError", 0.0),
        ("failed", "ValueError", 0.0),
        ("cancelled", "Cancelled", 1000.0),
    ]


async def test_arguments_are_in_the_line_where_they_may_be(caplog, autojump_clock):
    caplog.set_level(logging.INFO, "mcpbus.calls")
    server = slow(StructuredLoggingMiddleware(include_arguments=True))
    async with open_client(server) as client:
        await text(client, "wait", seconds=0)
    (line,) = [json.loads(record.getMessage()) for record in caplog.records]
    assert line["arguments"] == {"seconds": 0, "way": "result"}
    assert "session" not in line


async def test_nothing_is_made_ready_for_a_log_that_nobody_reads(caplog, autojump_clock):
    caplog.set_level(logging.WARNING, "mcpbus.calls")
    async with open_client(slow(StructuredLoggingMiddleware())) as client:
        await text(client, "wait", seconds=0)
    assert not caplog.records


# -- retry ---------------------------------------------------------------------------------------


def flaky(error, failures, middleware, **options):
    """A server whose tool and resource fail so many times."""
    server, tries = Server("s", middleware=[middleware]), []

    async def attempt() -> str:
        tries.append(trio.current_time())
        if len(tries) <= failures:
            raise error
        return "done"

    server.add_tool(attempt, **options)
    server.add_resource("flaky://it", attempt)
    return server, tries


def pauses(tries):
    return [round(after - before, 3) for before, after in itertools.pairwise(tries)]


@pytest.mark.parametrize(
    "options",
    [{"annotations": READS}, {"annotations": ToolAnnotations(idempotent_hint=True)}, {"replay": True}],
)
async def test_what_bears_repeating_is_tried_again_after_growing_pauses(options, autojump_clock):
    server, tries = flaky(ConnectionError(), 3, RetryMiddleware(), **options)
    async with open_client(server) as client:
        assert await text(client, "attempt") == "done"
    assert pauses(tries) == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ConnectionError(), {}),
        (ValueError(), {"replay": True}),
        (ToolError("no"), {"replay": True}),
    ],
)
async def test_nothing_else_is(error, options, autojump_clock):
    server, tries = flaky(error, 1, RetryMiddleware(), **options)
    async with open_client(server) as client:
        await refused(client, "attempt")
    assert len(tries) == 1


async def test_it_gives_up_and_its_pauses_are_bounded(autojump_clock):
    server, tries = flaky(
        OSError(),
        99,
        RetryMiddleware(4, base_delay=1, backoff_multiplier=3, max_delay=5, retry_exceptions=(OSError,)),
        replay=True,
    )
    async with open_client(server) as client:
        await refused(client, "attempt")
    assert pauses(tries) == [1, 3, 5, 5]


async def test_a_resource_is_read_again_and_a_group_of_one_is_what_is_in_it(autojump_clock):
    server, tries = flaky(ExceptionGroup("", [TimeoutError()]), 1, RetryMiddleware())
    async with open_client(server) as client:
        assert (await client.request("resources/read", {"uri": "flaky://it"}))["contents"][0][
            "text"
        ] == "done"
    assert len(tries) == 2


# -- rate limiting -------------------------------------------------------------------------------


async def made(client, calls):
    """How many of so many calls at once were made."""
    results = [await client.call_tool("wait", {"seconds": 0}) for _ in range(calls)]
    return sum(not result.get("isError") for result in results)


async def test_a_client_has_a_burst_and_then_so_many_in_a_second(autojump_clock):
    async with open_client(slow(RateLimitingMiddleware(2, burst_capacity=5))) as client:
        assert await made(client, 10) == 5
        assert await refused(client, "wait", seconds=0) == (
            "Too many calls: at most 2 in a second; try again in 0.5 s"
        )
        await trio.sleep(0.5)
        assert await made(client, 10) == 1
        await trio.sleep(1)
        assert await made(client, 10) == 2
        await trio.sleep(1000)
        assert await made(client, 10) == 5


async def test_each_principal_has_its_own(autojump_clock):
    async with (
        open_bus(slow(RateLimitingMiddleware(1))) as bus,
        bus.connect(principal="ada") as ada,
        bus.connect(principal="bob") as bob,
    ):
        assert [await made(ada, 3), await made(bob, 3), await made(ada, 3)] == [2, 2, 0]


async def test_clients_are_told_apart_as_the_author_says(autojump_clock):
    limit = RateLimitingMiddleware(1, 1, get_client_id=lambda invocation: invocation.name)
    async with (
        open_bus(slow(limit)) as bus,
        bus.connect(principal="ada") as ada,
        bus.connect(principal="bob") as bob,
    ):
        assert [await made(ada, 3), await made(bob, 3)] == [1, 0]


async def test_so_many_clients_are_remembered_and_those_who_are_there_first(autojump_clock):
    limit = RateLimitingMiddleware(1, 1, get_client_id=lambda call: call.arguments["way"], max_clients=2)
    async with open_client(slow(limit)) as client:
        for name in ("ada", "bob", "carol"):
            await text(client, "wait", seconds=0, way=name)
        assert len(limit._full_at.get()) == 2
        assert "Too many" in await refused(client, "wait", seconds=0, way="carol")
        await text(client, "wait", seconds=0, way="ada")


async def test_a_prompt_is_refused_with_an_error(autojump_clock):
    server = Server("s", middleware=[RateLimitingMiddleware(1, 1)])
    server.add_prompt(lambda: "hello", name="greet")
    async with open_client(server) as client:
        await client.request("prompts/get", {"name": "greet"})
        with pytest.raises(ProtocolError, match="Too many calls"):
            await client.request("prompts/get", {"name": "greet"})


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_rate_that_is_none_is_refused(limit):
    with pytest.raises(ValueError, match="max_requests_per_second is more than 0"):
        RateLimitingMiddleware(limit)


def test_another_run_of_trio_begins_anew():
    server = slow(RateLimitingMiddleware(0.001, 1))

    async def call():
        async with open_client(server) as client:
            return await made(client, 2)

    assert [trio.run(call), trio.run(call)] == [1, 1]


# -- response limiting ---------------------------------------------------------------------------


def returning(result, *middleware):
    server = Server("s", middleware=middleware)
    server.add_tool(lambda: result, name="give", thread=False)
    server.add_resource("given://it", lambda: result, thread=False)
    return server


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ("short", "short"),
        ("x" * 40, "x" * 40),
        ("x" * 41, "x" * 36 + " ..."),
        ("é" * 21, "é" * 18 + " ..."),
        ("x" + "é" * 20, "x" + "é" * 17 + " ..."),
    ],
)
async def test_text_is_cut_where_a_character_ends(given, got, autojump_clock):
    server = returning(given, ResponseLimitingMiddleware(40, " ..."))
    async with open_client(server) as client:
        assert await text(client, "give") == got
        read = await client.request("resources/read", {"uri": "given://it"})
        assert read["contents"][0]["text"] == got


@pytest.mark.parametrize("given", [["x" * 37], Image(b"x" * 99), ToolResult("x" * 37), {"a": "x" * 33}])
async def test_anything_else_that_is_too_large_is_refused(given, autojump_clock):
    server = returning(given, ResponseLimitingMiddleware(40, " ..."))
    async with open_client(server) as client:
        assert "bytes, and at most 40 are let out; ask for less" in await refused(client, "give")


async def test_what_is_small_enough_is_let_out_as_it_is(autojump_clock):
    async with open_client(returning(["x" * 37], ResponseLimitingMiddleware(40, " ..."))) as client:
        assert "let out" in await refused(client, "give")
    async with open_client(returning(["x" * 36], ResponseLimitingMiddleware(40, " ..."))) as client:
        assert await text(client, "give") == f'["{"x" * 36}"]'


async def test_a_text_counts_as_the_model_reads_it_and_not_as_json_carries_it(autojump_clock):
    given = '"' * 30 + "\n" * 10
    async with open_client(returning(given, ResponseLimitingMiddleware(40, " ..."))) as client:
        assert await text(client, "give") == given


async def test_a_question_is_no_result(autojump_clock):
    ask = InputRequired({"name": Elicit("What is your name?" * 9, {"type": "object", "properties": {}})})
    async with open_client(returning(ask, ResponseLimitingMiddleware(40))) as client:
        with pytest.raises(ProtocolError, match="elicitation"):
            await client.call_tool("give")


def test_a_size_that_leaves_no_room_is_refused():
    with pytest.raises(ValueError, match="max_size is a number of bytes, more than the suffix has"):
        ResponseLimitingMiddleware(10)


# -- caching -------------------------------------------------------------------------------------


def counting(cache, **options):
    server, made = Server("s", middleware=[cache]), []

    async def count(n: int = 0, fail: bool = False) -> str:
        made.append(n)
        if fail:
            raise ToolError("no")
        return f"{len(made)}" + "x" * n

    server.add_tool(count, **options)
    return server


async def test_a_tool_that_only_reads_is_called_once_for_the_same_arguments(autojump_clock):
    cache = ResponseCachingMiddleware(ttl=10)
    async with open_client(counting(cache, annotations=READS)) as client:
        assert [
            await text(client, "count"),
            await text(client, "count"),
            await text(client, "count", n=1),
        ] == [
            "1",
            "1",
            "2x",
        ]
        assert await text(client, "count", n=0) == "1"
        await trio.sleep(10.5)
        assert await text(client, "count") == "3"
        cache.clear()
        assert await text(client, "count") == "4"


async def depend(ctx: Context) -> str:
    return str(ctx.principal)


async def takes_context(ctx: Context) -> str:
    return str(trio.current_time())


async def takes_it_elsewhere(who: str = Depends(depend)) -> str:
    return str(trio.current_time())


async def takes_none() -> str:
    return str(trio.current_time())


@pytest.mark.parametrize(
    ("function", "annotations", "tools", "cached"),
    [
        (takes_none, READS, None, True),
        (takes_none, None, None, False),
        (takes_none, ToolAnnotations(idempotent_hint=True), None, False),
        (takes_context, READS, None, False),
        (takes_it_elsewhere, READS, None, False),
        (takes_context, None, ["tell"], True),
        (takes_none, READS, ["other"], False),
    ],
)
async def test_which_tools_are_cached(function, annotations, tools, cached, autojump_clock):
    server = Server("s", middleware=[ResponseCachingMiddleware(tools=tools)])
    server.add_tool(function, name="tell", annotations=annotations)
    async with open_client(server) as client:
        first = await text(client, "tell")
        await trio.sleep(1)
        assert (await text(client, "tell") == first) is cached


async def test_each_principal_has_results_of_its_own(autojump_clock):
    async with (
        open_bus(counting(ResponseCachingMiddleware(), annotations=READS)) as bus,
        bus.connect(principal="ada") as ada,
        bus.connect(principal="bob") as bob,
        bus.connect() as who,
    ):
        assert [await text(each, "count") for each in (ada, bob, who, ada)] == ["1", "2", "3", "1"]


class Someone:
    """A principal that is itself and nothing else, and so is counted to the address that it comes from."""


class Person(pydantic.BaseModel):
    """One that has no hash, which is counted to its address too."""

    name: str


@pytest.mark.parametrize(
    ("ada", "bob"),
    [(Someone(), Someone()), (Person(name="ada"), Person(name="bob"))],
    ids=["object", "model"],
)
async def test_principals_that_are_counted_as_one_owner_have_results_of_their_own(ada, bob, autojump_clock):
    async with (
        open_bus(counting(ResponseCachingMiddleware(), annotations=READS)) as bus,
        bus.connect(principal=ada) as first,
        bus.connect(principal=bob) as second,
    ):
        assert [await text(each, "count") for each in (first, second, first)] == ["1", "2", "1"]


class Login(pydantic.BaseModel):
    """What is encoded as stars."""

    password: pydantic.SecretStr


async def test_arguments_that_differ_in_a_secret_have_results_of_their_own(autojump_clock):
    server, asked = Server("s", middleware=[ResponseCachingMiddleware()]), []

    @server.tool(annotations=READS)
    async def mail(login: Login) -> str:
        asked.append(login)
        return f"that of {login.password.get_secret_value()}"

    async with open_client(server) as client:
        told = [await text(client, "mail", login={"password": word}) for word in ("a", "b", "a")]
    assert told == ["that of a", "that of b", "that of a"]
    assert len(asked) == 2


class Odd(pydantic.BaseModel):
    """One that is compared by a rule of its own."""

    name: str

    def __eq__(self, other):
        return self is other

    __hash__ = None


async def test_arguments_with_unknown_content_are_not_cached(autojump_clock):
    server, asked = Server("s", middleware=[ResponseCachingMiddleware(max_items=1)]), []

    @server.tool(annotations=READS)
    async def price(odd: Odd | None = None) -> str:
        asked.append(odd)
        return str(len(asked))

    async with open_client(server) as client:
        told = [
            await text(client, "price", **given)
            for given in ({}, {"odd": {"name": "a"}}, {"odd": {"name": "a"}}, {})
        ]
    assert told == ["1", "2", "3", "1"]


async def test_failures_and_what_is_too_large_are_not_kept(autojump_clock):
    cache = ResponseCachingMiddleware(max_item_size=200)
    async with open_client(counting(cache, annotations=READS)) as client:
        for _ in range(2):
            await refused(client, "count", fail=True)
        assert (await text(client, "count", n=300)).startswith("3x")
        assert (await text(client, "count", n=300)).startswith("4x")
        assert [await text(client, "count"), await text(client, "count")] == ["5", "5"]


async def test_a_result_that_says_that_it_failed_is_not_kept(autojump_clock):
    results = [ToolResult("no", is_error=True), ToolResult("yes")]
    server = Server("s", middleware=[ResponseCachingMiddleware()])
    server.add_tool(lambda: results.pop(0), name="give", annotations=READS)
    async with open_client(server) as client:
        assert await refused(client, "give") == "no"
        assert [await text(client, "give"), await text(client, "give")] == ["yes", "yes"]


async def test_so_many_are_kept_and_those_that_are_asked_for_first(autojump_clock):
    async with open_client(counting(ResponseCachingMiddleware(max_items=2), annotations=READS)) as client:
        asked = [await text(client, "count", n=n) for n in (0, 1, 0, 2, 0, 1)]
    assert asked == ["1", "2x", "1", "3xx", "1", "4x"]


async def test_a_tool_that_took_the_place_of_another_is_asked_itself(autojump_clock):
    server = counting(ResponseCachingMiddleware(), annotations=READS)
    async with open_client(server) as client:
        assert await text(client, "count") == "1"
        server.remove_tool("count")
        server.add_tool(takes_none, name="count", annotations=READS)
        assert "." in await text(client, "count")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ResponseCachingMiddleware(0), "ttl is more than 0, not 0"),
        (
            lambda: ResponseCachingMiddleware(tools="price"),
            r"tools is a list of names: write tools=\['price'\]",
        ),
        (
            lambda: RetryMiddleware(retry_exceptions=[OSError]),
            r"write \(ConnectionError,\), not \[<class 'OSError'>\]",
        ),
    ],
)
def test_what_would_be_noticed_late_or_never_is_refused_at_once(make, complaint):
    with pytest.raises((TypeError, ValueError), match=complaint):
        make()
