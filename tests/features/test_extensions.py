"""Extensions of the protocol: what a server declares, what it answers, and what it refuses (rules B-6 and B-11)."""

import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
import trio

from mcpbus import (
    Context,
    Elicit,
    InputRequired,
    Invocation,
    ProtocolError,
    RegistrationError,
    Server,
    SyncContext,
)
from mcpbus.client import MalformedAnswerError
from mcpbus.dispatch.dispatcher import INITIALIZE, LISTEN, SESSION_METHODS
from mcpbus.dispatch.methods import METHODS
from mcpbus.middleware import RetryMiddleware
from mcpbus.protocol.extensions import declared_settings, is_left_to_extensions
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.tasks import TASKS
from mcpbus.testing import open_bus, open_client, open_probe

SEARCH = "com.example/search"
SETTINGS = {"languages": ["en", "no"]}
DECLARED = {"extensions": {SEARCH: {"ranked": True}}}


@dataclass
class Found:
    titles: list[str]
    more: bool = False


class Sought(TypedDict):
    words: str


def searching(**options: Any) -> Server:
    server = Server("books", extensions={SEARCH: SETTINGS}, **options)

    @server.on_request("com.example/search/find", extension=SEARCH)
    async def find(words: str, ctx: Context, limit: int = 2) -> Found:
        """Find books."""
        await ctx.progress(1, 2)
        return Found([f"{words} {number}" for number in range(limit)], more=True)

    return server


async def refusal(awaitable: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as refused:
        await awaitable
    return refused.value


def own(result: dict[str, Any]) -> dict[str, Any]:
    """What a result says besides what every one does."""
    return {name: value for name, value in result.items() if name not in {"_meta", "resultType"}}


# -- What is declared ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_extensions_are_declared_with_their_settings(revision: str):
    server = Server("s", extensions={SEARCH: SETTINGS, "io.modelcontextprotocol/ui": {}})
    async with open_client(server, revision=revision) as client:
        declared = (await client.describe()).capabilities["extensions"]
    assert declared == {SEARCH: SETTINGS, "io.modelcontextprotocol/ui": {}}


async def test_they_are_declared_beside_tasks():
    server = Server("s", extensions={SEARCH: {}})
    server.add_tool(lambda: "t", name="t", task="optional")
    async with open_client(server) as client:
        assert (await client.describe()).capabilities["extensions"] == {SEARCH: {}, TASKS: {}}


REFUSED = {
    "a list": ([SEARCH], "write extensions={'com.example/search': {}}"),
    "no prefix": ({"search": {}}, "'search' is no identifier"),
    "no name": ({"com.example/": {}}, "is no identifier"),
    "a number for a domain": ({"1com/search": {}}, "is no identifier"),
    "two slashes": ({"com.example/a/b": {}}, "is no identifier"),
    "a name that is none": ({5: {}}, "5 is no identifier"),
    "settings that are none": ({SEARCH: True}, "the settings of 'com.example/search' are a dict"),
    "settings that JSON cannot say": (
        {SEARCH: {"at": {1, object()}}},
        "clients are told what JSON cannot say",
    ),
    "tasks": ({TASKS: {}}, "is declared by itself"),
}


@pytest.mark.parametrize(("extensions", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_extension_is_refused_with_what_to_write(extensions: Any, why: str):
    with pytest.raises((TypeError, ValueError, RegistrationError), match="extension") as refused:
        Server("s", extensions=extensions)
    assert why in str(refused.value)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_handler_knows_what_its_client_declares(revision: str):
    server, seen = Server("s"), []

    @server.tool
    async def look(ctx: Context) -> None:
        seen.append((ctx.client.extension(SEARCH), ctx.client.extension("com.example/other")))

    @server.tool
    def look_plainly(ctx: SyncContext) -> None:
        seen.append((ctx.client.extension(SEARCH), ctx.client.extension("com.example/other")))

    for capabilities in (DECLARED, {}):
        async with open_client(server, revision=revision, capabilities=capabilities) as client:
            await client.call_tool("look")
            await client.call_tool("look_plainly")
    assert seen == [({"ranked": True}, None)] * 2 + [(None, None)] * 2


@pytest.mark.parametrize("extensions", [[SEARCH], {SEARCH: True}, {SEARCH: None}, 5])
def test_what_is_malformed_declares_nothing(extensions: Any):
    assert declared_settings({"extensions": extensions}, SEARCH) is None


# -- What is answered ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_request_is_answered_and_what_is_said_meanwhile_is_heard(revision: str):
    said: list[str] = []
    async with open_client(searching(), revision=revision, capabilities=DECLARED) as client:
        result = await client.request(
            "com.example/search/find",
            {"words": "sea", "limit": 1},
            on_notification=lambda method, _: said.append(method),
        )
    assert own(result) == {"titles": ["sea 0"], "more": True}
    assert said == ["notifications/progress"]
    assert (result.get("resultType"), "_meta" in result) == (
        ("complete", True) if REVISIONS[revision].result_type else (None, False)
    )


@pytest.mark.parametrize("revision", REVISIONS)
async def test_who_has_not_declared_the_extension_is_refused(revision: str):
    async with open_client(searching(), revision=revision) as client:
        refused = await refusal(client.request("com.example/search/find", {"words": "sea"}))
    assert refused.code == -32021
    assert refused.data == {"requiredCapabilities": {"extensions": {SEARCH: {}}}}


BAD_PARAMS = {
    "nothing": ({}, "missing required argument `words`"),
    "another type": ({"words": 5}, "argument `words`: Input should be a valid string, got 5"),
    "one too many": (
        {"words": "sea", "colour": "red"},
        "unknown argument `colour`; expected `words`, `limit`",
    ),
}


@pytest.mark.parametrize(("params", "why"), BAD_PARAMS.values(), ids=BAD_PARAMS)
async def test_params_are_held_against_the_signature(params: dict[str, Any], why: str):
    async with open_client(searching(), capabilities=DECLARED) as client:
        refused = await refusal(client.request("com.example/search/find", params))
    assert refused.code == -32602
    assert why in refused.message
    assert "`params" in refused.message


RESULTS = {
    "nothing": (None, {}),
    "an empty object": ({}, {}),
    "an object": ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    "a dataclass": (Found(["x"]), {"titles": ["x"], "more": False}),
}


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(("value", "result"), RESULTS.values(), ids=RESULTS)
async def test_what_a_function_returns_is_the_result(value: Any, result: dict[str, Any], revision: str):
    server = Server("s")
    server.on_request("com.example/get")(lambda: value)
    async with open_client(server, revision=revision) as client:
        assert own(await client.request("com.example/get")) == result


async def test_a_result_may_have_a_kind_and_a_meta_of_its_own():
    """B-11: a kind that an extension defines is for those who have declared one."""
    server = Server("s", extensions={SEARCH: {}})
    receipt = {"resultType": "receipt", "_meta": {"com.example/at": 5}}
    server.on_request("com.example/buy")(lambda: receipt)
    async with open_client(server, capabilities=DECLARED) as client:
        result = await client.request("com.example/buy")
    assert result["resultType"] == "receipt"
    assert result["_meta"]["com.example/at"] == 5
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "s"
    async with open_client(server) as client:
        with pytest.raises(MalformedAnswerError, match="receipt"):
            await client.request("com.example/buy")


@pytest.mark.parametrize("kind", [["complete"], {}, 5, None])
async def test_a_kind_is_a_text_whatever_a_client_declares(kind: Any):
    server = Server("s")
    server.on_request("com.example/buy")(lambda: {"resultType": kind})
    for capabilities in (DECLARED, {}):
        async with open_client(server, capabilities=capabilities) as client:
            with pytest.raises(MalformedAnswerError, match="of a type that nobody knows"):
                await client.request("com.example/buy")


async def test_without_sessions_nobody_knows_what_an_older_client_has_declared():
    server = searching()
    server.on_request("com.example/open")(lambda: {"open": True})
    older = {"mcp-protocol-version": "2025-11-25"}
    async with open_bus(server) as bus, open_probe(bus.asgi(sessions="stateless")) as probe:
        message = {"jsonrpc": "2.0", "id": 1, "method": "com.example/search/find", "params": {"words": "sea"}}
        assert (await probe.post(message, older).reply())["error"]["code"] == -32021
        message = {"jsonrpc": "2.0", "id": 1, "method": "com.example/open"}
        assert (await probe.post(message, older).reply())["result"] == {"open": True}


NO_RESULTS = {
    "a number": (5, "com.example/get returned int; the result of a request is an object"),
    "a text": ("text", "com.example/get returned str"),
    "a list": ([1], "com.example/get returned list"),
    "what JSON cannot say": (object(), "object"),
}


@pytest.mark.parametrize(("value", "why"), NO_RESULTS.values(), ids=NO_RESULTS)
async def test_what_is_no_object_is_for_the_log_alone(value: Any, why: str, caplog: pytest.LogCaptureFixture):
    server = Server("s")
    server.on_request("com.example/get")(lambda: value)
    async with open_client(server) as client:
        refused = await refusal(client.request("com.example/get"))
    assert (refused.code, refused.message) == (-32603, "Internal error")
    assert "com.example/get failed" in caplog.text
    assert why in caplog.text


async def test_a_plain_function_runs_in_a_thread_unless_it_says_otherwise():
    server, threads = Server("s"), []
    server.on_request("com.example/apart")(lambda: threads.append(threading.current_thread()))
    server.on_request("com.example/here", thread=False)(lambda: threads.append(threading.current_thread()))
    async with server.open() as bus, bus.connect() as client:
        await client.request("com.example/apart")
        await client.request("com.example/here")
    assert [thread is threading.current_thread() for thread in threads] == [False, True]


def perhaps() -> dict[str, int] | None:
    return None


def one_or_the_other() -> Found | Sought:
    return Sought("x")


@pytest.mark.parametrize("function", [perhaps, one_or_the_other])
def test_a_result_may_be_one_object_or_another(function: Any):
    server = Server("s")
    server.on_request("com.example/get")(function)
    assert server.features.methods.used


async def test_what_a_function_raises_is_told_as_that_of_a_prompt_is(caplog: pytest.LogCaptureFixture):
    server = Server("s")

    @server.on_request("com.example/refuse")
    async def refuse() -> None:
        raise ProtocolError(-31000, "not today", {"again": "tomorrow"})

    @server.on_request("com.example/fail")
    async def fail() -> None:
        raise RuntimeError("the password is 1234")

    async with open_client(server) as client:
        refused = await refusal(client.request("com.example/refuse"))
        assert (refused.code, refused.data) == (-31000, {"again": "tomorrow"})
        assert (await refusal(client.request("com.example/fail"))).message == "Internal error"
        assert "the password is 1234" in caplog.text


async def test_it_is_ended_in_time(autojump_clock: trio.testing.MockClock):
    server = Server("s")

    @server.on_request("com.example/slow", timeout=2)
    async def slow() -> None:
        await trio.sleep_forever()

    async with open_client(server) as client:
        refused = await refusal(client.request("com.example/slow"))
    assert refused.message == "com.example/slow timed out after 2 s"


async def test_a_call_that_its_client_gives_up_is_cancelled(autojump_clock: trio.testing.MockClock):
    server, ended = Server("s"), trio.Event()

    @server.on_request("com.example/wait")
    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with open_client(server) as client:
        with trio.move_on_after(1):
            await client.request("com.example/wait")
        with trio.fail_after(1):
            await ended.wait()


def ask_and_wait(server: Server):
    @server.on_request("com.example/name")
    async def name(ctx: Context) -> dict[str, str]:
        return {"name": (await ctx.elicit("Your name?", str)).data}


def ask_and_come_back(server: Server):
    @server.on_request("com.example/name")
    async def name(ctx: Context) -> dict[str, str] | InputRequired:
        if ctx.round_state is None:
            return InputRequired({"name": Elicit("Your name?", str)}, state="asked")
        answers = await ctx.ask_all({"name": Elicit("Your name?", str)})
        return {"name": answers["name"].data}


@pytest.mark.parametrize("register", [ask_and_wait, ask_and_come_back])
async def test_the_client_is_asked_in_the_legacy_era_alone(register: Any):
    server = Server("s")
    register(server)

    async def answer(_: str, __: dict[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {"value": "Ann"}}

    able = {"elicitation": {}}
    async with open_client(
        server, revision="2025-11-25", capabilities=able, on_input_request=answer
    ) as client:
        assert own(await client.request("com.example/name")) == {"name": "Ann"}
    async with open_client(server, capabilities=able, on_input_request=answer) as client:
        assert (await refusal(client.request("com.example/name"))).code == -32603


# -- What is around it -----------------------------------------------------------------------------------------------------------


async def test_middleware_is_around_it():
    seen = []

    async def note(invocation: Invocation, call_next: Any) -> Any:
        seen.append((invocation.method, invocation.name, dict(invocation.arguments), invocation.tool))
        return await call_next(invocation)

    async with open_client(searching(middleware=[note]), capabilities=DECLARED) as client:
        await client.request("com.example/search/find", {"words": "sea"})
    assert seen == [
        ("com.example/search/find", "com.example/search/find", {"words": "sea", "limit": 2}, None)
    ]


async def test_what_nobody_said_may_be_repeated_is_not_tried_again(autojump_clock: trio.testing.MockClock):
    server, runs = Server("s", middleware=[RetryMiddleware()]), []

    @server.on_request("com.example/pay")
    async def pay() -> None:
        runs.append(1)
        raise ConnectionError

    async with open_client(server) as client:
        await refusal(client.request("com.example/pay"))
    assert runs == [1]


async def test_it_is_offered_through_the_server_above_under_the_same_name():
    @asynccontextmanager
    async def lifespan(_: Server[str]) -> Any:
        yield "below"

    below = Server("below", extensions={SEARCH: SETTINGS}, lifespan=lifespan)

    @below.on_request("com.example/search/where", extension=SEARCH)
    async def where(ctx: Context) -> dict[str, str]:
        return {"state": ctx.state}

    above = Server("above", extensions={"com.example/other": {}})
    above.mount(below, prefix="shop")
    async with open_client(above, capabilities=DECLARED) as client:
        assert (await client.describe()).capabilities["extensions"] == {
            "com.example/other": {},
            SEARCH: SETTINGS,
        }
        assert own(await client.request("com.example/search/where")) == {"state": "below"}


def test_a_server_that_says_otherwise_of_an_extension_is_not_mounted():
    above = Server("above", extensions={SEARCH: {}})
    with pytest.raises(RegistrationError, match="has other settings in the server to be mounted"):
        above.mount(Server("below", extensions={SEARCH: SETTINGS}))
    assert above.mounted() == []


async def test_what_is_mounted_below_later_is_declared_above():
    above, below = Server("above"), Server("below")
    above.mount(below)
    below.mount(Server("deep", extensions={SEARCH: SETTINGS}))
    async with open_client(above) as client:
        assert (await client.describe()).capabilities["extensions"] == {SEARCH: SETTINGS}


async def test_what_is_mounted_below_later_and_says_otherwise_of_an_extension_is_told(
    caplog: pytest.LogCaptureFixture,
):
    above, below, deep = (
        Server("above", extensions={SEARCH: {}}),
        Server("below"),
        Server("deep", extensions={SEARCH: SETTINGS}),
    )
    above.mount(below)
    below.mount(deep)
    assert f"extension {SEARCH!r} has other settings in the server to be mounted" in caplog.text
    async with open_client(above) as client:
        assert (await client.describe()).capabilities["extensions"] == {SEARCH: {}}


async def test_one_is_added_while_the_server_is_open():
    server = Server("s")
    async with open_bus(server) as bus, bus.connect() as client:
        assert (await refusal(client.request("com.example/new"))).code == -32601
        server.on_request("com.example/new")(lambda: {"new": True})
        assert own(await client.request("com.example/new")) == {"new": True}


# -- What cannot be registered ---------------------------------------------------------------------------------------------------


def of_text() -> str:
    return ""


def of_list() -> list[int]:
    return []


def text_or_number() -> str | int:
    return 5


def list_or_nothing() -> list[int] | None:
    return None


def of_meta(_meta: dict[str, Any]) -> None: ...


def any_number(*numbers: int) -> None: ...


UNFIT = {
    "the protocol's own": (lambda s: s.on_request("tools/call")(of_text), "is a method of the protocol"),
    "one that looks like it": (lambda s: s.on_request("tools/mend")(of_text), "or looks like one"),
    "a notification": (lambda s: s.on_request("notifications/x")(of_text), "or looks like one"),
    "JSON-RPC's own": (lambda s: s.on_request("rpc.discover")(of_text), "or looks like one"),
    "no name": (lambda s: s.on_request("")(of_text), "or looks like one"),
    "two words": (lambda s: s.on_request("com.example/a b")(of_text), "or looks like one"),
    "what no header can say": (lambda s: s.on_request("com.example/søk")(of_text), "not visible ASCII alone"),
    "its meta for a parameter": (lambda s: s.on_request("com.example/x")(of_meta), "read ctx.meta"),
    "a list or nothing for a result": (lambda s: s.on_request("com.example/x")(list_or_nothing), "an object"),
    "an extension that is not declared": (
        lambda s: s.on_request("com.example/x", extension="com.example/y")(of_text),
        "write Server(..., extensions={'com.example/y': {}})",
    ),
    "text for a result": (lambda s: s.on_request("com.example/x")(of_text), "an object: return a dict"),
    "a list for a result": (lambda s: s.on_request("com.example/x")(of_list), "not array"),
    "parameters without names": (
        lambda s: s.on_request("com.example/x")(any_number),
        "cannot be given by name",
    ),
    "no function": (lambda s: s.on_request("com.example/x")("find"), "'find' cannot be a request"),
    "no time": (
        lambda s: s.on_request("com.example/x", timeout=0)(lambda: None),
        "a positive number of seconds",
    ),
    "a flag that is text": (
        lambda s: s.on_request("com.example/x", thread="no")(lambda: None),
        "thread is True or False, not 'no'",
    ),
    "one text or another": (lambda s: s.on_request("com.example/x")(text_or_number), "is an object"),
    "an option that there is not": (
        lambda s: s.on_request("com.example/x", titel="X")(lambda: None),
        "titel",
    ),
}


@pytest.mark.parametrize(("register", "why"), UNFIT.values(), ids=UNFIT)
def test_what_cannot_be_answered_is_refused_with_what_to_write(register: Any, why: str):
    server = Server("s")
    with pytest.raises((RegistrationError, TypeError)) as refused:
        register(server)
    assert why in str(refused.value)
    assert not server.features.methods.used


def test_one_method_has_one_function():
    server = Server("s")
    server.on_request("com.example/x")(lambda: None)
    with pytest.raises(RegistrationError, match=r"request 'com\.example/x' is registered already"):
        server.on_request("com.example/x")(lambda: None)


def test_a_decorator_without_its_method_says_what_to_write():
    with pytest.raises(TypeError, match=r'write @server.on_request\("com.example/search"\)'):
        Server("s").on_request(of_text)


@pytest.mark.parametrize("method", [*METHODS, *SESSION_METHODS, INITIALIZE, LISTEN, "sampling/createMessage"])
def test_no_method_of_the_protocol_is_left_to_extensions(method: str):
    assert not is_left_to_extensions(method)


@pytest.mark.parametrize(
    "method",
    [
        *(
            "resources/directory",
            "resources/directory/",
            "resources//read",
            "resources/templates/get",
            "resources",
        ),
        *("notifications/resources/read", "rpc.a/b/c", "tools/lists", "initialize/", "resources/a b/read"),
    ],
)
def test_what_looks_like_a_method_of_the_protocol_is_not_left_to_extensions(method: str):
    assert not is_left_to_extensions(method)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_standard_extension_has_methods_in_a_family_of_the_protocol(
    revision: str, autojump_clock: Any
):
    skills = "io.modelcontextprotocol/skills"
    server = Server("s", extensions={skills: {"directoryRead": True}})

    @server.on_request("resources/directory/read", extension=skills)
    async def read(uri: str) -> dict[str, Any]:
        return {"resources": [{"uri": f"{uri}/SKILL.md", "name": "SKILL.md"}]}

    @server.resource("skill://a/SKILL.md")
    def skill() -> str:
        return "# A"

    async with open_client(server, revision=revision, capabilities={"extensions": {skills: {}}}) as client:
        found = await client.request("resources/directory/read", {"uri": "skill://a"})
        assert own(found) == {"resources": [{"uri": "skill://a/SKILL.md", "name": "SKILL.md"}]}
        assert (await client.read_resource("skill://a/SKILL.md"))[0]["text"] == "# A"


@pytest.mark.one_shell("is about clients in process")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_in_process_what_an_extension_says_in_a_request_reaches_that_request(
    revision: str, autojump_clock: Any
):
    server = searching()

    @server.on_request("com.example/search/watch", extension=SEARCH)
    async def watch(name: str, ctx: Context) -> None:
        for part in range(2):
            await ctx.notify("notifications/com.example/found", {"name": name, "part": part})
            await trio.sleep(1)

    heard: dict[str, list[Any]] = {"a": [], "b": []}
    async with open_client(server, revision=revision, capabilities={"extensions": {SEARCH: {}}}) as client:

        async def ask(name: str) -> None:
            def hear(method: str, params: dict[str, Any]) -> None:
                heard[name].append((method, params["name"], params["part"]))

            await client.request("com.example/search/watch", {"name": name}, on_notification=hear)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "a")
            nursery.start_soon(ask, "b")
        assert [*client.notifications] == []
    for name, said in heard.items():
        assert said == [("notifications/com.example/found", name, part) for part in range(2)]
